package tablestore.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.ChangelogTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts Delta's own relation where a statement reads a table, so that the plan is the same as that of the Delta table.
 *
 * <p>A statement that works its rows out from the table that it changes reads it at the version that it has named, since
 * {@link RowLevelWrites} makes its commit hold only if none of these rows has changed since.
 */
final class NativeReads extends Rule<LogicalPlan> {
  /** The options of time travel, which Spark itself handles as it does VERSION AS OF. */
  private static final Set<String> TIME_TRAVEL = Set.of("versionasof", "timestampasof");

  /** The option of a read that shows what an eventual log has beyond the newest version. */
  private static final String FRESH = "fresh";

  private static final String CATALOG = "org.apache.spark.sql.classic.Catalog";

  private final SparkSession session;

  NativeReads(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    Set<ExprId> lost = new HashSet<>();
    LogicalPlan found = replaced(plan, lost);
    if (!lost.isEmpty() && found.exists(node -> names((LogicalPlan) node, lost))) {
      throw Refusals.plain(
          "no-kind", "the rows of a version are no changes, so they have no column _kind: a stream of the table has it");
    }
    return found == plan ? plan : Nullability.updated(found);
  }

  /** Returns whether a node of the plan names one of some columns. */
  static boolean names(LogicalPlan node, Set<ExprId> columns) {
    for (Expression expression : CollectionConverters.asJava(node.expressions())) {
      if (expression.exists(part -> part instanceof AttributeReference a && columns.contains(a.exprId()))) {
        return true;
      }
    }
    return false;
  }

  /** Replaces the relations; adds the columns that the statement might have named, and that are not there then. */
  private LogicalPlan replaced(LogicalPlan plan, Set<ExprId> lost) {
    if (plan instanceof DataSourceV2Relation relation) {
      return read(relation, lost);
    }
    if (plan instanceof DeleteFromTable || plan instanceof UpdateTable) {
      return plan; // its only child is its target, for which Spark's own rule puts a scan into the plan
    }
    if (plan instanceof MergeIntoTable merge) {
      LogicalPlan source = replaced(merge.sourceTable(), lost);
      LogicalPlan target = merge.targetTable();
      return source == merge.sourceTable() ? plan : withChildren(merge, List.of(target, source));
    }
    return (LogicalPlan) plan.mapChildren(child -> replaced((LogicalPlan) child, lost));
  }

  private static LogicalPlan withChildren(LogicalPlan plan, List<LogicalPlan> children) {
    return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(children).toIndexedSeq());
  }

  private LogicalPlan read(DataSourceV2Relation relation, Set<ExprId> lost) {
    if (relation.table() instanceof ChangelogTable read && read.changelog() instanceof VersionChanges changes) {
      return named(PythonReads.changes(changes, session), relation.output(), List.of());
    }
    if (relation.table() instanceof TemporalTable) {
      return relation; // TemporalJoins replaces it
    }
    if (relation.table() instanceof TablestoreTable table) {
      if (Callers.has(CATALOG, "refreshTable")) {
        return relation; // for which it calls invalidateTable. Of files it wants an entry of the session catalog
      }
      return read(relation, table, table.isPinned(), lost);
    }
    if (relation.table() instanceof RowLevelOperationTable changed
        && changed.table() instanceof TablestoreTable table) {
      return read(relation, table, true, lost);
    }
    return relation;
  }

  private LogicalPlan read(
      DataSourceV2Relation relation, TablestoreTable table, boolean pinned, Set<ExprId> lost) {
    for (String option : relation.options().keySet()) {
      if (!TIME_TRAVEL.contains(option) && !option.equals(FRESH)) {
        throw Refusals.plain(
            "unknown-option",
            "a read of a table has no option " + option + "; it has " + FRESH + ". "
                + OptionsOfDelta.ofRead(
                    option,
                    "Where changes begin, as scan says, is an option of a stream: FROM STREAM " + table.name()
                        + " WITH (…)"));
      }
    }
    if (isFresh(relation.options().getOrDefault(FRESH, "false"))) {
      if (table.isNamedVersion()) {
        throw Refusals.plain("bad-time-travel", "a read of one version cannot be fresh: leave one of the two out");
      }
      return named(PythonReads.fresh(table, session), relation.output(), hidden(relation));
    }
    if (!table.isPlain()) {
      return ChangesOfTopics.read(table, PythonReads.plan(table, session), relation.output(), hidden(relation));
    }
    hidden(relation).forEach(column -> lost.add(column.exprId()));
    PlainScans.know(session, table.location(), table.request("plain_version"));
    LogicalPlan plan = Rereads.relation(session, table.location(), pinned ? table.versionNumber() : null);
    return plan instanceof LogicalRelation found
        ? Rereads.sameColumns(found, relation.output())
        : named(plan, relation.output(), List.of());
  }

  private static boolean isFresh(String value) {
    boolean fresh = value.equalsIgnoreCase("true");
    if (!fresh && !value.equalsIgnoreCase("false")) {
      throw Refusals.plain("bad-option-value", FRESH + "='" + value + "' is neither true nor false");
    }
    return fresh;
  }

  /** Returns the columns that the statement has not named yet. */
  private static List<Attribute> hidden(DataSourceV2Relation relation) {
    List<Attribute> found = new ArrayList<>();
    for (Attribute column : CollectionConverters.asJava(relation.metadataOutput())) {
      if (!relation.outputSet().contains(column)) {
        found.add(column);
      }
    }
    return found;
  }

  /**
   * Returns a plan's columns with the ids of those that they stand for. Each may be null if it may be in the plan.
   *
   * @param visible the columns of {@code SELECT *}
   * @param hidden columns that are there if they are named, and if the plan has them
   */
  static LogicalPlan named(LogicalPlan plan, Seq<AttributeReference> visible, List<Attribute> hidden) {
    return named(plan, visible, hidden, UnaryOperator.identity());
  }

  /**
   * Returns those columns without rows that stand for nothing, whose values may be null where those of others are not.
   *
   * @param chosen leaves out rows of the plan with both kinds of columns
   */
  static LogicalPlan named(
      LogicalPlan plan, Seq<AttributeReference> visible, List<Attribute> hidden, UnaryOperator<LogicalPlan> chosen) {
    List<NamedExpression> all = new ArrayList<>();
    for (Attribute wanted : CollectionConverters.asJava(visible)) {
      all.add(Attributes.as(Rereads.byName(plan, wanted.name()), wanted));
    }
    LogicalPlan inner = chosen.apply(withHidden(plan, all, hidden));
    List<Attribute> columns = CollectionConverters.asJava(inner.output());
    return columns.size() == all.size() ? inner : shown(columns.subList(0, all.size()), inner);
  }

  /** Returns those columns; each is NOT NULL if the wanted one is, and a null in it is an error. */
  static LogicalPlan checked(LogicalPlan plan, Seq<AttributeReference> visible, List<Attribute> hidden) {
    List<NamedExpression> all = new ArrayList<>();
    List<NamedExpression> shown = new ArrayList<>();
    for (Attribute wanted : CollectionConverters.asJava(visible)) {
      Attribute found = Rereads.byName(plan, wanted.name());
      boolean checked = found.nullable() && !wanted.nullable();
      Alias column = checked ? Attributes.as(found, wanted.name()) : Attributes.as(found, wanted);
      all.add(column);
      Attribute value = column.toAttribute();
      shown.add(checked ? Attributes.as(Nullability.checked(value, false, wanted.name()), wanted) : value);
    }
    return shown(shown, withHidden(plan, all, hidden));
  }

  private static Project withHidden(LogicalPlan plan, List<NamedExpression> visible, List<Attribute> hidden) {
    List<NamedExpression> all = new ArrayList<>(visible);
    for (Attribute wanted : hidden) {
      if (Rereads.has(plan, wanted.name())) {
        all.add(Attributes.as(Rereads.byName(plan, wanted.name()), wanted));
      }
    }
    return Attributes.project(all, plan);
  }

  /** Returns some columns of a plan, whose last ones are there if the statement names them. */
  private static Project shown(List<? extends NamedExpression> columns, LogicalPlan plan) {
    Project found = Attributes.project(columns, plan);
    List<Attribute> all = CollectionConverters.asJava(plan.output());
    found.setTagValue(Project.hiddenOutputTag(), Attributes.seq(all.subList(columns.size(), all.size())));
    return found;
  }
}
