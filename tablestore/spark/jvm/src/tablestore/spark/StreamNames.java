package tablestore.spark;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;

/**
 * Makes the refusal of Spark to run a stream as a query, which ends with the name of its source, say what to do.
 *
 * <p>IMPORTANT: this is done when all columns are resolved. A copy of a relation has other hidden columns, so one that a
 * query has named would be missing.
 */
final class StreamNames extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.isStreaming() ? explained(plan) : plan;
  }

  private static LogicalPlan explained(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2 relation
        && relation.table() instanceof TablestoreTable table
        && relation.sourceName().equals(table.name())) {
      String catalog = relation.catalog().isDefined() ? relation.catalog().get().name() + "." : "";
      String name = "STREAM " + table.name() + ": no SELECT runs it alone, but INSERT INTO … WITH ('checkpoint' = 'folder') "
          + "SELECT … FROM STREAM …, or CALL " + catalog + "sys.start_stream(…)";
      return relation.copy(
          relation.source(),
          name,
          relation.table(),
          relation.extraOptions(),
          relation.output(),
          relation.catalog(),
          relation.identifier(),
          relation.v1Relation(),
          relation.sourceIdentifyingName());
    }
    return (LogicalPlan) plan.mapChildren(child -> explained((LogicalPlan) child));
  }
}
