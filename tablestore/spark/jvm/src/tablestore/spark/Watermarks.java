package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.unsafe.types.CalendarInterval;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gives each stream of a table the watermark that the table has.
 *
 * <p>A query with a watermark of its own has that one alone: of two Spark would take the slower one.
 */
final class Watermarks extends Rule<LogicalPlan> {
  private static final TreeNodeTag<Boolean> OF_TABLE = new TreeNodeTag<>("tablestore.watermark");

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.isStreaming() ? marked(plan, false) : plan;
  }

  /**
   * Returns a plan whose streams have the watermarks of their tables.
   *
   * @param own whether the query has a watermark of its own above it
   */
  private static LogicalPlan marked(LogicalPlan plan, boolean own) {
    if (plan instanceof EventTimeWatermark found && found.getTagValue(OF_TABLE).isDefined()) {
      return own ? found.child() : plan;
    }
    if (!own && plan instanceof StreamingRelationV2 relation && relation.table() instanceof TablestoreTable table) {
      return table.watermarkColumn().map(column -> watermark(relation, table, column)).orElse(plan);
    }
    boolean below = own || plan instanceof EventTimeWatermark;
    return (LogicalPlan) plan.mapChildren(child -> marked((LogicalPlan) child, below));
  }

  private static LogicalPlan watermark(StreamingRelationV2 relation, TablestoreTable table, String column) {
    if (Rereads.has(relation, column)) {
      return over(relation, table, column);
    }
    // a VIRTUAL column of a topic: a query that does not name it needs the watermark, too
    LogicalPlan marked = over(relation.withMetadataColumns(), table, column);
    Project shown = Attributes.project(new ArrayList<>(CollectionConverters.asJava(relation.output())), marked);
    List<Attribute> hidden = new ArrayList<>(CollectionConverters.asJava(marked.output()));
    hidden.removeIf(relation.outputSet()::contains);
    shown.setTagValue(Project.hiddenOutputTag(), Attributes.seq(hidden));
    return shown;
  }

  private static LogicalPlan over(LogicalPlan relation, TablestoreTable table, String column) {
    CalendarInterval delay = new CalendarInterval(0, 0, Math.multiplyExact(table.watermarkDelayMs(), 1_000L));
    LogicalPlan found =
        new EventTimeWatermark(UUID.randomUUID(), Rereads.byName(relation, column), delay, relation);
    found.setTagValue(OF_TABLE, true);
    return found;
  }
}
