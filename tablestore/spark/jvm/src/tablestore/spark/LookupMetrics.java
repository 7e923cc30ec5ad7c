package tablestore.spark;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;

/**
 * Gives each look-up join of a stream a name of its own in the progress: {@code lookup shop.dim}, {@code lookup shop.dim
 * 2}.
 *
 * <p>Views and frames with such joins are planned alone, and Spark refuses a query with two metrics of one name.
 */
final class LookupMetrics extends Rule<LogicalPlan> {
  private static final String PREFIX = "lookup ";

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.isStreaming() ? named(plan, new HashSet<>()) : plan;
  }

  private static LogicalPlan named(LogicalPlan plan, Set<String> taken) {
    LogicalPlan found = (LogicalPlan) plan.mapChildren(child -> named((LogicalPlan) child, taken));
    if (!(found instanceof CollectMetrics metrics) || !metrics.name().startsWith(PREFIX)) {
      return found;
    }
    String name = metrics.name();
    for (int number = 2; !taken.add(name); number++) {
      name = metrics.name() + " " + number;
    }
    return name.equals(metrics.name())
        ? found
        : metrics.copy(name, metrics.metrics(), metrics.child(), metrics.dataframeId());
  }
}
