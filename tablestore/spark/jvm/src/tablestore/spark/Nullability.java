package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decides what happens where a table has no nulls, and what stands for it may have some.
 *
 * <p>There are two ways, and one function for each. Where nothing above has been decided yet, the plan learns that the
 * columns may be null ({@link #updated}), so that Spark itself checks what is written. Spark's own rule comes too late for
 * that: it runs once a plan is analyzed, and makes writes unresolved that nothing resolves again. Where the plan is
 * resolved already, or where the rows have no null, a null is an error ({@link #checked}).
 */
final class Nullability {
  private final Map<Long, List<Attribute>> queries = new HashMap<>();

  private Nullability() {}

  /** Returns a value in which a null is an error if there must be none. */
  static Expression checked(Expression value, boolean nullable, String name) {
    return nullable || !value.nullable() ? value : new AssertNotNull(value, Attributes.seq(List.of(name)));
  }

  /**
   * Returns the plan in which each name of a column may be null if the column may, also in nodes that are not resolved:
   * they keep the names that they have, and a write above them would be planned for these.
   */
  static LogicalPlan updated(LogicalPlan plan) {
    return new Nullability().spread(plan, Set.of());
  }

  /**
   * Spreads what the leaves of a plan say. A name of {@code WITH} comes behind its query, whose columns it has kept.
   *
   * @param outer the columns from outside of a subquery that may be null
   */
  private LogicalPlan spread(LogicalPlan plan, Set<ExprId> outer) {
    if (plan instanceof CTERelationRef name) {
      return queries.containsKey(name.cteId()) ? sameNulls(name, queries.get(name.cteId())) : name;
    }
    LogicalPlan found = (LogicalPlan) plan.mapChildren(child -> spread((LogicalPlan) child, outer));
    Set<ExprId> nulls = new HashSet<>(outer);
    for (LogicalPlan child : CollectionConverters.asJava(found.children())) {
      if (child.resolved()) {
        CollectionConverters.asJava(child.output()).stream()
            .filter(Attribute::nullable)
            .forEach(column -> nulls.add(column.exprId()));
      }
    }
    if (!nulls.isEmpty()) {
      found = (LogicalPlan) found.mapExpressions(expression -> withNulls((Expression) expression, nulls));
    }
    if (found instanceof CTERelationDef query && query.resolved()) {
      queries.put(query.id(), CollectionConverters.asJava(query.output()));
    }
    return found;
  }

  private Expression withNulls(Expression expression, Set<ExprId> nulls) {
    if (expression instanceof Attribute column) {
      boolean changes = column.resolved() && !column.nullable() && nulls.contains(column.exprId());
      return changes ? (Expression) column.withNullability(true) : expression;
    }
    if (expression instanceof OuterReference outer) { // which is no parent of its column
      Expression column = withNulls((Expression) outer.e(), nulls);
      return column == outer.e() ? outer : new OuterReference((NamedExpression) column);
    }
    Expression found = (Expression) expression.mapChildren(child -> withNulls((Expression) child, nulls));
    return found instanceof SubqueryExpression subquery
        ? subquery.withNewPlan(spread((LogicalPlan) subquery.plan(), nulls))
        : found;
  }

  private static CTERelationRef sameNulls(CTERelationRef name, List<Attribute> query) {
    List<Attribute> columns = new ArrayList<>(CollectionConverters.asJava(name.output()));
    boolean changed = false;
    for (int i = 0; i < columns.size(); i++) {
      if (query.get(i).nullable() && !columns.get(i).nullable()) {
        columns.set(i, columns.get(i).withNullability(true));
        changed = true;
      }
    }
    return !changed
        ? name
        : name.copy(
            name.cteId(),
            name.resolved(),
            Attributes.seq(columns),
            name.isStreaming(),
            name.statsOpt(),
            name.recursive(),
            name.maxRows(),
            name.isUnlimitedRecursion());
  }
}
