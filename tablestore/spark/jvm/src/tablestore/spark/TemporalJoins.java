package tablestore.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Makes look-up joins of the joins with a {@link TemporalTable}, once Spark has resolved all their names.
 *
 * <p>Spark's optimizer takes no column out of a Python function's rows, so only the columns that the statement needs
 * pass through it.
 */
final class TemporalJoins extends Rule<LogicalPlan> {
  private final SparkSession session;

  TemporalJoins(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.exists(node -> isTemporal((LogicalPlan) node)) ? joined(plan, null) : plan;
  }

  private static boolean isTemporal(LogicalPlan plan) {
    return plan instanceof DataSourceV2Relation relation && relation.table() instanceof TemporalTable;
  }

  /** Returns the temporal table from which all rows of a plan come; null if that is another one, or several. */
  private static LogicalPlan behind(LogicalPlan plan) {
    LogicalPlan found = plan;
    while (found.children().size() == 1) {
      found = (LogicalPlan) found.children().head();
    }
    return isTemporal(found) ? found : null;
  }

  /**
   * Replaces the joins of a plan.
   *
   * @param wanted the columns of the plan that what is above it needs; null for all
   */
  private LogicalPlan joined(LogicalPlan plan, Set<ExprId> wanted) {
    if (plan instanceof Join join && behind(join.right()) instanceof DataSourceV2Relation relation) {
      if (!join.resolved()) {
        return plan; // Spark says what is wrong with it, or has not done its work yet
      }
      TemporalJoin temporal = new TemporalJoin(session, join, relation);
      return temporal.over(joined(join.left(), union(wanted, temporal.references())), wanted);
    }
    if (isTemporal(plan)) {
      throw TemporalJoin.refused(
          ((TemporalTable) ((DataSourceV2Relation) plan).table()),
          "each row of a join's other side has a time, so the table stands alone on the right of JOIN or LEFT JOIN");
    }
    Set<ExprId> below = wantedBelow(plan, wanted);
    return (LogicalPlan) plan.mapChildren(child -> joined((LogicalPlan) child, below));
  }

  private static Set<ExprId> wantedBelow(LogicalPlan plan, Set<ExprId> wanted) {
    if (!plan.expressions().forall(Expression::resolved)) {
      return null; // it does not say yet which columns it needs
    }
    if (plan instanceof Project || plan instanceof Aggregate) {
      return Attributes.ids(plan.references());
    }
    boolean passes =
        plan instanceof Filter || plan instanceof Sort || plan instanceof SubqueryAlias || plan instanceof Join;
    return passes ? union(wanted, Attributes.ids(plan.references())) : null;
  }

  private static Set<ExprId> union(Set<ExprId> wanted, Set<ExprId> more) {
    if (wanted == null) {
      return null;
    }
    Set<ExprId> found = new HashSet<>(wanted);
    found.addAll(more);
    return found;
  }
}
