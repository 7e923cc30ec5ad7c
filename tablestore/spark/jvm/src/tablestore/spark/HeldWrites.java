package tablestore.spark;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.Some;

/** Keeps statements that write tables of ours unresolved until {@link TextValues} has seen all of their types. */
final class HeldWrites extends Rule<LogicalPlan> {
  private final SparkSession session;

  HeldWrites(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof V2WriteCommand write && !(write.query() instanceof HeldQuery)) {
      return isOurs((LogicalPlan) write.table()) ? held(write) : plan;
    }
    if (plan instanceof UpdateTable update && !update.condition().exists(HeldCondition.class::isInstance)) {
      return isOurs(update.table()) ? held(update) : plan;
    }
    // before columns are added Spark compares the types as they are
    if (plan instanceof MergeIntoTable merge
        && !merge.withSchemaEvolution()
        && !(merge.mergeCondition() instanceof HeldCondition)) {
      return isOurs(merge.targetTable()) ? held(merge) : plan;
    }
    return plan;
  }

  private boolean isOurs(LogicalPlan target) {
    return Targets.isOurs(session, target);
  }

  private static LogicalPlan held(V2WriteCommand write) {
    return (LogicalPlan) write.withNewQuery(new HeldQuery(write.query()));
  }

  private static UpdateTable held(UpdateTable update) {
    Expression condition = update.condition().getOrElse(() -> HeldCondition.NONE);
    return update.copy(update.table(), update.assignments(), new Some<>(new HeldCondition(condition)));
  }

  private static MergeIntoTable held(MergeIntoTable merge) {
    return merge.copy(
        merge.targetTable(),
        merge.sourceTable(),
        new HeldCondition(merge.mergeCondition()),
        merge.matchedActions(),
        merge.notMatchedActions(),
        merge.notMatchedBySourceActions(),
        merge.withSchemaEvolution());
  }
}
