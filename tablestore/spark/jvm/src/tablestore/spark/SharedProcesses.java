package tablestore.spark;

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

/**
 * Runs functions of ours in Python processes that all sessions share ({@link SharedMapInArrow}).
 *
 * <p>Spark has Python processes of its own for each session's set of artifacts, and keeps them until the JVM ends
 * (SPARK-54055), so a server would have some for each session that has ever written. Our functions use no artifact of a
 * session. Functions of users may, and stay as they are.
 */
public final class SharedProcesses extends SparkStrategy {
  private static final TreeNodeTag<Boolean> OURS = new TreeNodeTag<>("tablestore.shared-processes");

  /** Says that the function of {@code mapInArrow}, which has made these rows, is ours. */
  public static void use(Dataset<?> rows) {
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset<?>) rows).queryExecution().analyzed();
    if (plan instanceof MapInArrow) {
      plan.setTagValue(OURS, true);
    }
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (!(plan instanceof MapInArrow map) || !map.getTagValue(OURS).isDefined()) {
      return Attributes.seq(List.of());
    }
    SparkPlan rows = planLater(map.child());
    return Attributes.seq(
        List.of(new SharedMapInArrow(map.functionExpr(), map.output(), rows, map.isBarrier(), map.profile())));
  }
}
