package tablestore.spark;

import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;

/** Refuses Delta's own API for tables, whose changes and new tables would not be those of a table with a key. */
final class DeltaTables {
  private static final String API = "io.delta.tables.DeltaTable$";
  private static final String BUILDER = "io.delta.tables.DeltaTableBuilder";

  private DeltaTables() {}

  /** Refuses {@code DeltaTable.forName} of a table that this catalog loads. */
  static void refuseLoaded(String name) {
    if (Callers.has(API, "forName")) {
      throw refused(name);
    }
  }

  /** Refuses it before Delta looks for a name without a catalog in its own one; returns the name. */
  static Seq<String> parsed(SparkSession session, Seq<String> parts) {
    TablestoreTable table = Callers.has(API, "forName") ? OurName.table(session, parts) : null;
    if (table != null) {
      throw refused(table.name());
    }
    return parts;
  }

  /** Refuses {@code DeltaTable.create}, which ends with {@code forName}, before it has made or replaced a table. */
  static void refuseCreated(String name) {
    if (Callers.has(BUILDER, "execute")) {
      throw Refusals.plain(
          "delta-table-api",
          "DeltaTable.create, createIfNotExists and createOrReplace make tables of Delta's own catalog, and " + name
              + " is not in it: write CREATE TABLE, CREATE TABLE IF NOT EXISTS or CREATE OR REPLACE TABLE in SQL");
    }
  }

  private static RuntimeException refused(String name) {
    return Refusals.plain(
        "delta-table-api",
        "DeltaTable.forName takes tables of Delta's own catalog, and its changes would not be those of " + name
            + ": write df.mergeInto(\"" + name + "\", condition), or UPDATE, DELETE, MERGE, VACUUM, OPTIMIZE and RESTORE "
            + "in SQL, and DESCRIBE HISTORY for its versions");
  }
}
