package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UpdateAttributeNullability$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes columns nullable in a plan whose relations have got other columns, which may be null.
 *
 * <p>Spark does so when a plan is analyzed, and then finds writes that are not resolved any more. Before that they are
 * resolved again, with a check of each value. A name of {@code WITH} keeps the columns that its query had, and Spark only
 * updates them when it puts the query in its place.
 */
final class Nullability {
  private Nullability() {}

  /** Returns the plan with the nullability of what it reads. */
  static LogicalPlan updated(LogicalPlan plan) {
    LogicalPlan found = UpdateAttributeNullability$.MODULE$.apply(plan);
    Map<Long, List<Attribute>> queries = new HashMap<>();
    found.foreach(
        node -> {
          if (node instanceof CTERelationDef query && query.resolved()) {
            queries.put(query.id(), CollectionConverters.asJava(query.output()));
          }
          return null;
        });
    LogicalPlan named = named(found, queries);
    return named == found ? found : updated(named); // a query of WITH may name another one
  }

  private static LogicalPlan named(LogicalPlan plan, Map<Long, List<Attribute>> queries) {
    if (plan instanceof CTERelationRef name && name.resolved() && queries.containsKey(name.cteId())) {
      return sameNulls(name, queries.get(name.cteId()));
    }
    return (LogicalPlan) plan.mapChildren(child -> named((LogicalPlan) child, queries));
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
