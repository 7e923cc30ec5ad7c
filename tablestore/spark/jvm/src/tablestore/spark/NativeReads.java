package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Some;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts Delta's own relation where a statement reads a table, so that the plan is the same as that of the Delta table.
 *
 * <p>A statement that works its rows out from the table that it changes reads it at the version that it has named, since
 * {@link RowLevelWrites} makes its commit hold only if none of these rows has changed since.
 */
final class NativeReads extends Rule<LogicalPlan> {
  /** Spark itself reads these, as what VERSION AS OF says. */
  private static final Set<String> TIME_TRAVEL = Set.of("versionasof", "timestampasof");

  private final SparkSession session;

  NativeReads(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof DataSourceV2Relation relation) {
      return read(relation);
    }
    if (plan instanceof DeleteFromTable || plan instanceof UpdateTable) {
      return plan; // its only child is its target, for which Spark's own rule puts a scan into the plan
    }
    if (plan instanceof MergeIntoTable merge) {
      LogicalPlan source = apply(merge.sourceTable());
      LogicalPlan target = merge.targetTable();
      return source == merge.sourceTable() ? plan : withChildren(merge, List.of(target, source));
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  private static LogicalPlan withChildren(LogicalPlan plan, List<LogicalPlan> children) {
    return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(children).toIndexedSeq());
  }

  private LogicalPlan read(DataSourceV2Relation relation) {
    if (relation.table() instanceof TablestoreTable table) {
      return read(relation, table, table.isPinned());
    }
    if (relation.table() instanceof RowLevelOperationTable changed
        && changed.table() instanceof TablestoreTable table) {
      return read(relation, table, true);
    }
    return relation;
  }

  private LogicalPlan read(DataSourceV2Relation relation, TablestoreTable table, boolean pinned) {
    for (String option : relation.options().keySet()) {
      if (!TIME_TRAVEL.contains(option)) {
        throw Refusals.plain("unknown-option", "a read of a table has no option " + option);
      }
    }
    if (!table.isPlain()) {
      return named(PythonReads.plan(table, session), relation);
    }
    LogicalPlan plan = Rereads.relation(session, table.location(), pinned ? table.versionNumber() : null);
    return plan instanceof LogicalRelation found
        ? Rereads.sameColumns(found, relation.output())
        : named(plan, relation);
  }

  private static LogicalPlan named(LogicalPlan plan, DataSourceV2Relation relation) {
    List<NamedExpression> columns = new ArrayList<>();
    for (AttributeReference wanted : CollectionConverters.asJava(relation.output())) {
      columns.add(
          new Alias(
              Rereads.byName(plan, wanted.name()),
              wanted.name(),
              wanted.exprId(),
              wanted.qualifier(),
              new Some<>(wanted.metadata()),
              CollectionConverters.asScala(List.<String>of()).toSeq()));
    }
    return new Project(CollectionConverters.asScala(columns).toSeq(), plan);
  }
}
