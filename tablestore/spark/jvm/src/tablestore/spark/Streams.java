package tablestore.spark;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;

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

  private LogicalPlan read(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2 relation && relation.table() instanceof TablestoreTable table) {
      Map<String, String> options = relation.extraOptions().asCaseSensitiveMap();
      LogicalPlan rows = PythonReads.stream(table, options, Rereads.has(relation, TablestoreTable.KIND), session);
      return NativeReads.named(rows, relation.output(), List.of());
    }
    return (LogicalPlan) plan.mapChildren(child -> read((LogicalPlan) child));
  }
}
