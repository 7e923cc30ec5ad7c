package tablestore.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf.StoreAssignmentPolicy$;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Casts text that a statement writes into columns of other types, as Delta does: text that is no such value is an error
 * when the statement runs, and nothing is written.
 *
 * <p>Spark's own check of a write refuses all text there ({@code CANNOT_SAFELY_CAST}), so the casts have to be in the
 * plan before it. For INSERT this rule comes in time: Spark makes a write of it in a later round of the analyzer. All
 * other statements it checks as soon as they are resolved, so {@link HeldWrites} keeps them from that.
 */
final class TextValues extends Rule<LogicalPlan> {
  private static final Object ANSI = StoreAssignmentPolicy$.MODULE$.ANSI();

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof Union union && union.children().forall(InsertIntoStatement.class::isInstance)) {
      return (LogicalPlan) union.mapChildren(insertion -> apply((LogicalPlan) insertion)); // FROM … INSERT … INSERT …
    }
    LogicalPlan target = target(plan);
    if (target == null || !isReady(plan, target)) {
      return plan;
    }
    boolean casts = Targets.isOurs(target) && SQLConf.get().storeAssignmentPolicy().equals(ANSI);
    if (plan instanceof InsertIntoStatement insert) {
      return casts ? withQuery(plan, cast(insert.query(), inserted(insert), isByName(insert))) : plan;
    }
    if (plan instanceof V2WriteCommand write) {
      LogicalPlan query = ((HeldQuery) write.query()).child();
      return withQuery(plan, casts ? cast(query, written(write, query), write.isByName()) : query);
    }
    return released(plan, casts);
  }

  /** Returns the table of a statement that waits for its casts; null for all else. */
  private static LogicalPlan target(LogicalPlan plan) {
    if (plan instanceof InsertIntoStatement insert) {
      return insert.table();
    }
    if (plan instanceof V2WriteCommand write && write.query() instanceof HeldQuery) {
      return (LogicalPlan) write.table();
    }
    if (plan instanceof UpdateTable update && update.condition().exists(HeldCondition.class::isInstance)) {
      return update.table();
    }
    return plan instanceof MergeIntoTable merge && merge.mergeCondition() instanceof HeldCondition
        ? merge.targetTable()
        : null;
  }

  /**
   * Returns whether all types are known that a cast needs: those of the target, of the rows, and of the values and
   * conditions of a statement. The condition of an overwrite is no reason to wait: Spark resolves it behind the rows.
   */
  private static boolean isReady(LogicalPlan statement, LogicalPlan target) {
    return target.resolved()
        && statement.children().forall(rows -> (rows instanceof HeldQuery held ? held.child() : rows).resolved())
        && (statement instanceof V2WriteCommand || isResolved(statement.expressions()));
  }

  private static boolean isResolved(Seq<Expression> parts) {
    return parts.forall(part -> (part instanceof HeldCondition held ? held.child() : part).resolved());
  }

  private static LogicalPlan withQuery(LogicalPlan statement, LogicalPlan query) {
    return (LogicalPlan) statement.withNewChildren(Attributes.seq(List.<LogicalPlan>of(query)).toIndexedSeq());
  }

  private static LogicalPlan released(LogicalPlan statement, boolean casts) {
    LogicalPlan found = (LogicalPlan) statement.transformExpressions(new Released(casts));
    return found instanceof UpdateTable update && update.condition().get() == HeldCondition.NONE
        ? update.copy(update.table(), update.assignments(), Option.empty())
        : found;
  }

  /** Returns the column for each value of a write; null for a value that has none, which Spark refuses. */
  private static List<Attribute> written(V2WriteCommand write, LogicalPlan query) {
    List<Attribute> columns = CollectionConverters.asJava(((LogicalPlan) write.table()).output());
    return write.isByName() ? named(names(query), columns) : columns;
  }

  /** Returns the same for an INSERT, without the columns whose values PARTITION (…) names. */
  private static List<Attribute> inserted(InsertIntoStatement insert) {
    List<Attribute> columns = CollectionConverters.asJava(insert.table().output());
    List<String> listed = CollectionConverters.asJava(insert.userSpecifiedCols());
    if (isByName(insert)) {
      return named(listed.isEmpty() ? names(insert.query()) : listed, columns);
    }
    Set<String> fixed = new HashSet<>();
    CollectionConverters.asJava(insert.partitionSpec())
        .forEach((name, value) -> fixed.addAll(value.isDefined() ? Set.of(name) : Set.of()));
    return columns.stream().filter(c -> fixed.stream().noneMatch(name -> Attributes.isSame(name, c.name()))).toList();
  }

  private static boolean isByName(InsertIntoStatement insert) {
    return insert.byName() || insert.userSpecifiedCols().nonEmpty();
  }

  private static List<String> names(LogicalPlan query) {
    return CollectionConverters.asJava(query.output()).stream().map(Attribute::name).toList();
  }

  private static List<Attribute> named(List<String> names, List<Attribute> columns) {
    List<Attribute> found = new ArrayList<>();
    for (String name : names) {
      found.add(columns.stream().filter(column -> Attributes.isSame(name, column.name())).findFirst().orElse(null));
    }
    return found;
  }

  private static LogicalPlan cast(LogicalPlan query, List<Attribute> wanted, boolean byName) {
    List<NamedExpression> columns = new ArrayList<>();
    boolean changed = false;
    for (Attribute column : CollectionConverters.asJava(query.output())) {
      Attribute target = columns.size() < wanted.size() ? wanted.get(columns.size()) : null;
      Expression value = target == null ? column : cast(column, target.dataType(), byName);
      changed |= value != column;
      columns.add(value == column ? column : Attributes.as(value, column.name()));
    }
    return changed ? Attributes.project(columns, query) : query;
  }

  private static Expression cast(Expression value, DataType wanted, boolean byName) {
    DataType type = new Text(byName).as(value.dataType(), wanted);
    return type.equals(value.dataType())
        ? value
        : new Cast(value, type, new Some<>(SQLConf.get().sessionLocalTimeZone()), EvalMode$.MODULE$.ANSI());
  }

  /** Casts the values of assignments, and ends the hold. */
  private static final class Released extends AbstractPartialFunction<Expression, Expression> {
    private final boolean casts;

    Released(boolean casts) {
      this.casts = casts;
    }

    @Override
    public boolean isDefinedAt(Expression part) {
      return part instanceof HeldCondition || (casts && part instanceof Assignment);
    }

    @Override
    public Expression apply(Expression part) {
      if (part instanceof HeldCondition held) {
        return held.child();
      }
      Assignment assignment = (Assignment) part;
      Expression value = cast(assignment.value(), assignment.key().dataType(), true);
      return value == assignment.value() ? assignment : new Assignment(assignment.key(), value);
    }
  }
}
