package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

/** Reads that are no plain Delta scan: streams, system tables, and versions whose pending runs cover rows. */
final class PythonReads {
  private PythonReads() {}

  /** Returns the plan of the DataFrame that Python makes for the table's version. */
  static LogicalPlan plan(TablestoreTable table, SparkSession session) {
    ObjectNode request = table.request("read").put("version", table.versionNumber()).put("pinned", table.isPinned());
    return analyzed(request, session);
  }

  /** Returns the plan of the newest version with what an eventual log has beyond it. */
  static LogicalPlan fresh(TablestoreTable table, SparkSession session) {
    return analyzed(table.request("read_fresh"), session);
  }

  /**
   * Returns the plan of the table's changes as a stream.
   *
   * @param options those of {@code SparkStore.read_stream}
   * @param withKind whether a column says what each row does. Without it, only inserts are possible
   */
  static LogicalPlan stream(
      TablestoreTable table, Map<String, String> options, boolean withKind, SparkSession session) {
    ObjectNode request = table.request("read_stream").put("with_kind", withKind);
    ObjectNode given = request.putObject("options");
    options.forEach(given::put);
    return analyzed(request, session);
  }

  /** Returns the plan of the changes of some versions. */
  static LogicalPlan changes(VersionChanges changes, SparkSession session) {
    return analyzed(changes.request(), session);
  }

  private static LogicalPlan analyzed(ObjectNode request, SparkSession session) {
    Dataset<?> rows = (Dataset<?>) PythonSide.read(request, session, null);
    return rows.queryExecution().analyzed();
  }
}
