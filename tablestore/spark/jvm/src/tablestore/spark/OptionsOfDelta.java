package tablestore.spark;

import java.util.Map;

/** Says what has the place of an option of Delta that a table lacks. */
final class OptionsOfDelta {
  private static final String CHANGES =
      "table_changes('database.table', first, last), or CHANGES FROM VERSION, reads what each version changed";
  private static final String FILES = "leave it out: options of the table, such as target-file-size, say how files are written";
  private static final String ONCE =
      "leave it out: a streaming query that ends in toTable, or SparkStore.write_batch, writes each batch once";

  /** The sentences for options of reads, by their names in lower case. */
  private static final Map<String, String> READS =
      Map.of(
          "readchangefeed", CHANGES,
          "readchangedata", CHANGES,
          "startingversion", CHANGES,
          "endingversion", CHANGES,
          "startingtimestamp", CHANGES,
          "endingtimestamp", CHANGES);

  /** The sentences for options of writes. */
  private static final Map<String, String> WRITES =
      Map.of(
          "replacewhere", "INSERT INTO … REPLACE WHERE, or writeTo(…).overwrite(condition), replaces partitions",
          "overwriteschema", "leave it out, or put a new table in the place of this one: writeTo(…).createOrReplace()",
          "txnappid", ONCE,
          "txnversion", ONCE,
          "usermetadata", "leave it out: versions have no texts of users. CALL sys.create_tag names a version",
          "optimizewrite", FILES,
          "datachange", FILES,
          "maxrecordsperfile", FILES,
          "compression", FILES);

  private OptionsOfDelta() {}

  /** Returns what to do in the place of an option of a read, or else that sentence. */
  static String ofRead(String option, String otherwise) {
    return READS.getOrDefault(option, otherwise);
  }

  /** Returns what to do in the place of an option of a write, or else that sentence. */
  static String ofWrite(String option, String otherwise) {
    return WRITES.getOrDefault(option, otherwise);
  }
}
