package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

/** Reads that are no plain Delta scan: pending runs that cover rows of the version, and system tables. */
final class PythonReads {
  private PythonReads() {}

  /** Returns the plan of the DataFrame that Python makes for the table's version. */
  static LogicalPlan plan(TablestoreTable table, SparkSession session) {
    ObjectNode request = table.request("read").put("version", table.versionNumber()).put("pinned", table.isPinned());
    Dataset<?> rows = (Dataset<?>) PythonSide.read(request, session);
    return rows.queryExecution().analyzed();
  }
}
