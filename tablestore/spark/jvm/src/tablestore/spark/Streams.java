package tablestore.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Replaces placeholders in a streaming query, at its start, by what really reads and writes.
 *
 * <p>This is not done before, since until then the query may still ask for the column {@code _kind}, without which it
 * can only have inserts.
 */
final class Streams extends Rule<LogicalPlan> {
  private final SparkSession session;

  Streams(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteToStream query)) {
      refuseWithoutCheckpoint(plan);
      return plan;
    }
    Table sink = query.sink() instanceof TablestoreTable table ? new StreamSink(table, query.outputMode()) : query.sink();
    LogicalPlan rows = read(query.inputQuery());
    if (sink == query.sink() && rows == query.inputQuery()) {
      return plan;
    }
    return new WriteToStream(
        query.name(),
        query.sinkName(),
        query.resolvedCheckpointLocation(),
        sink,
        query.outputMode(),
        query.deleteCheckpointOnStop(),
        rows,
        query.catalogAndIdent(),
        query.catalogTable());
  }

  /** Refuses to insert rows of a stream by a statement that starts none. */
  private static void refuseWithoutCheckpoint(LogicalPlan plan) {
    LogicalPlan target = null;
    LogicalPlan rows = null;
    if (plan instanceof InsertIntoStatement insert) {
      target = insert.table();
      rows = insert.query();
    } else if (plan instanceof V2WriteCommand write) {
      target = (LogicalPlan) write.table();
      rows = write.query();
    }
    // a stream of the target itself makes Spark take that for a stream, too
    Object table =
        target instanceof DataSourceV2Relation relation
            ? relation.table()
            : target instanceof StreamingRelationV2 stream ? stream.table() : null;
    if (table instanceof TablestoreTable ours && rows.isStreaming()) {
      throw Refusals.plain(
          "no-checkpoint",
          "rows FROM STREAM are written by a stream, which needs a folder for its progress: write INSERT INTO "
              + ours.name() + " WITH ('checkpoint' = 'folder') SELECT …");
    }
  }

  private LogicalPlan read(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2 relation && relation.table() instanceof TablestoreTable table) {
      Map<String, String> options = relation.extraOptions().asCaseSensitiveMap();
      LogicalPlan rows = PythonReads.stream(table, options, Rereads.has(relation, TablestoreTable.KIND), session);
      return NativeReads.named(rows, relation.output(), List.of());
    }
    return (LogicalPlan) plan.mapChildren(child -> read((LogicalPlan) child));
  }
}
