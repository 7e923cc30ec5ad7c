package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;

/**
 * Filters the rows of a look-up join before their look-up, as far as the condition is about their own columns.
 *
 * <p>Spark does not do so, since it does not know that the Python function leaves these columns as they are.
 */
final class LookupFilters extends Rule<LogicalPlan> {
  /** The number of columns that a look-up join leaves as they are: the first ones. */
  private static final TreeNodeTag<Integer> OWN = new TreeNodeTag<>("tablestore.lookup");

  /** Says that a plan is a look-up join. */
  static void mark(LogicalPlan plan, int own) {
    plan.setTagValue(OWN, own);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    LogicalPlan found =
        plan instanceof Filter filter
                && filter.child() instanceof MapInArrow lookup
                && lookup.getTagValue(OWN).isDefined()
            ? pushed(filter, lookup)
            : plan;
    return (LogicalPlan) found.mapChildren(child -> apply((LogicalPlan) child));
  }

  private static LogicalPlan pushed(Filter filter, MapInArrow lookup) {
    Map<ExprId, Attribute> own = new HashMap<>();
    for (int column = 0; column < lookup.getTagValue(OWN).get(); column++) {
      own.put(lookup.output().apply(column).exprId(), lookup.child().output().apply(column));
    }
    List<Expression> before = new ArrayList<>();
    List<Expression> behind = new ArrayList<>();
    for (Expression condition : Attributes.conjuncts(filter.condition())) {
      boolean isOwn = condition.deterministic() && own.keySet().containsAll(Attributes.ids(condition));
      (isOwn ? before : behind).add(condition);
    }
    if (before.isEmpty()) {
      return filter;
    }
    Expression condition = new Substitution(own).in(Attributes.all(before));
    LogicalPlan joined =
        (LogicalPlan)
            lookup.withNewChildren(Attributes.seq(List.of(new Filter(condition, lookup.child()))));
    return behind.isEmpty() ? joined : new Filter(Attributes.all(behind), joined);
  }
}
