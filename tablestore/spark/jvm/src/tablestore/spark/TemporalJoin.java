package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubExprUtils;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.Cross$;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ResolvedHint;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One join with a {@link TemporalTable}.
 *
 * <p>Python makes the look-up join of an empty relation with the columns that it needs of the other side, whose plan then
 * gets that relation's place.
 */
final class TemporalJoin {
  private static final String TIME = "at";
  private static final String OWN = "own_";
  private static final String KEY = "key_";
  private static final String FOUND = "found_";

  private final SparkSession session;
  private final Join join;
  private final TemporalTable table;
  private final Map<ExprId, String> columns;
  private final JoinKeys keys;
  private final Expression time;

  /**
   * Checks a join.
   *
   * @param join the join, which is resolved
   * @param relation the table on its right
   */
  TemporalJoin(SparkSession session, Join join, DataSourceV2Relation relation) {
    this.session = session;
    this.join = join;
    this.table = (TemporalTable) relation.table();
    this.columns = columnsOf(join.right());
    if (!isLeft() && join.joinType() != Inner$.MODULE$ && join.joinType() != Cross$.MODULE$) {
      throw refused(table, "such a join is inner or left, and not " + join.joinType().sql());
    }
    List<Expression> conditions = Attributes.conjuncts(join.condition());
    this.keys = new JoinKeys(conditions, columns);
    this.time = resolvedTime();
    check(conditions);
  }

  static RuntimeException refused(TemporalTable table, String reason) {
    return Refusals.plain(
        "temporal-join",
        table.name() + " FOR SYSTEM_TIME AS OF " + table.time.sql() + " is not possible here: " + reason);
  }

  private boolean isLeft() {
    return join.joinType() == LeftOuter$.MODULE$;
  }

  /** Returns the table's columns by their ids in the plan, some of which the statement may have renamed. */
  private Map<ExprId, String> columnsOf(LogicalPlan plan) {
    Map<ExprId, String> found = new HashMap<>();
    if (plan instanceof DataSourceV2Relation) {
      CollectionConverters.asJava(plan.output()).forEach(column -> found.put(column.exprId(), column.name()));
    } else if (plan instanceof SubqueryAlias || plan instanceof ResolvedHint) {
      return columnsOf((LogicalPlan) plan.children().head());
    } else if (plan instanceof Project project) {
      Map<ExprId, String> below = columnsOf(project.child());
      for (NamedExpression column : CollectionConverters.asJava(project.projectList())) {
        Expression source = column instanceof Alias alias ? alias.child() : (Expression) column;
        if (!(source instanceof Attribute known) || !below.containsKey(known.exprId())) {
          throw refused(table, "a subquery of the table can only choose columns: " + source.sql());
        }
        found.put(column.exprId(), below.get(known.exprId()));
      }
    } else {
      throw refused(table, "between the table and the join is " + plan.nodeName());
    }
    return found;
  }

  /** Returns the time as an expression over the other side, which alone is known where it stands. */
  private Expression resolvedTime() {
    LocalRelation other = relation(CollectionConverters.asJava(join.left().output()), false);
    LogicalPlan asked = Attributes.project(List.of(Attributes.as(table.time, TIME)), other);
    LogicalPlan found = Dataset$.MODULE$.ofRows(session, asked).queryExecution().analyzed();
    if (found instanceof Project project && project.projectList().head() instanceof Alias alias) {
      return alias.child();
    }
    throw refused(table, "the time is that of one row of the other side");
  }

  private void check(List<Expression> conditions) {
    if (keys.columns.isEmpty()) {
      throw refused(
          table,
          "ON needs an equality of a column of the table with a value of the other side. If their types differ, cast the "
              + "value to the type of the column");
    }
    if (!conditions.stream().allMatch(Expression::deterministic)) {
      throw refused(table, "ON has a function that gives another value each time");
    }
    if (conditions.stream().anyMatch(SubExprUtils::containsOuter)) {
      throw refused(table, "it names a column from outside of the subquery that it is in");
    }
    if (isLeft() && keys.others.stream().anyMatch(SubqueryExpression::hasCorrelatedSubquery)) {
      throw refused(table, "a subquery in ON of a left join cannot name columns from outside of it");
    }
    if (isLeft() && !keys.others.isEmpty() && !isByKey()) {
      throw refused(
          table,
          "a left join whose ON has not the whole primary key takes only equalities of the table's columns, and not "
              + keys.others.get(0).sql());
    }
  }

  /** Returns whether a row has at most one match. */
  private boolean isByKey() {
    return !table.primaryKey().isEmpty() && keys.columns.containsAll(table.primaryKey());
  }

  /** Returns the columns of the other side that the join itself needs. */
  Set<ExprId> references() {
    Set<ExprId> found = new HashSet<>(Attributes.ids(time));
    keys.values.forEach(value -> found.addAll(Attributes.ids(value)));
    keys.others.forEach(condition -> found.addAll(Attributes.ids(condition)));
    return found;
  }

  /**
   * Returns the look-up join.
   *
   * @param left the other side
   * @param wanted the columns of the join that what is above it needs; null for all
   */
  LogicalPlan over(LogicalPlan left, Set<ExprId> wanted) {
    List<Attribute> own = chosen(join.left(), wanted);
    List<Attribute> found = chosen(join.right(), wanted);
    List<NamedExpression> given = new ArrayList<>();
    for (Attribute column : own) {
      given.add(Attributes.as(column, OWN + given.size()));
    }
    ObjectNode request = request(found);
    for (int number = 0; number < keys.columns.size(); number++) {
      given.add(Attributes.as(keys.values.get(number), KEY + number));
      request.withObjectProperty("on").put(KEY + number, keys.columns.get(number));
    }
    given.add(Attributes.as(time, TIME));
    LogicalPlan rows = lookedUp(request, Attributes.project(given, left));
    return filtered(rows, own, found);
  }

  private List<Attribute> chosen(LogicalPlan side, Set<ExprId> wanted) {
    Set<ExprId> compared = new HashSet<>();
    keys.others.forEach(condition -> compared.addAll(Attributes.ids(condition)));
    return CollectionConverters.asJava(side.output()).stream()
        .filter(c -> wanted == null || wanted.contains(c.exprId()) || compared.contains(c.exprId()))
        .toList();
  }

  private ObjectNode request(List<Attribute> found) {
    ObjectNode request = table.request("temporal_join").put("kind", isLeft() ? "left" : "inner");
    request.put("at", TIME).put("time", table.time.sql()).put("prefix", FOUND).put("expired", table.expired);
    Set<String> names = new LinkedHashSet<>();
    found.forEach(column -> names.add(columns.get(column.exprId())));
    ArrayNode wanted = request.putArray("columns");
    names.forEach(wanted::add);
    return request;
  }

  private LogicalPlan lookedUp(ObjectNode request, Project given) {
    LocalRelation place = relation(CollectionConverters.asJava(given.output()), given.isStreaming());
    Dataset<?> joined =
        (Dataset<?>) PythonSide.read(request, session, Dataset$.MODULE$.ofRows(session, place));
    LogicalPlan plan = joined.queryExecution().analyzed();
    LookupFilters.mark(plan, given.output().size());
    return put(plan, place, given);
  }

  private static LogicalPlan put(LogicalPlan plan, LocalRelation place, LogicalPlan given) {
    if (plan instanceof LocalRelation found && found.output().equals(place.output())) {
      return given;
    }
    return (LogicalPlan) plan.mapChildren(child -> put((LogicalPlan) child, place, given));
  }

  private static LocalRelation relation(List<Attribute> columns, boolean isStreaming) {
    return new LocalRelation(Attributes.seq(columns), Attributes.seq(List.of()), isStreaming, Option.empty());
  }

  /** Gives the rows the columns of the join, and applies what its condition has besides the equalities. */
  private LogicalPlan filtered(LogicalPlan rows, List<Attribute> own, List<Attribute> found) {
    boolean nulls = isLeft() && !keys.others.isEmpty();
    List<NamedExpression> all = new ArrayList<>();
    for (Attribute column : own) {
      all.add(Attributes.as(Rereads.byName(rows, OWN + all.size()), column));
    }
    Map<ExprId, Attribute> matched = new HashMap<>();
    for (Attribute column : found) {
      // the rest of the statement is resolved for what the join has: the columns of a left join may be null
      Attribute looked = ofType(Rereads.byName(rows, FOUND + columns.get(column.exprId())), column);
      Expression value = Nullability.checked(looked, isLeft() || column.nullable(), column.name());
      Alias named = nulls ? Attributes.as(value, column.name()) : Attributes.as(value, column);
      matched.put(column.exprId(), named.toAttribute());
      all.add(named);
    }
    if (keys.others.isEmpty()) {
      return Attributes.project(all, rows);
    }
    Expression condition = Attributes.all(keys.others);
    if (!nulls) {
      return new Filter(condition, Attributes.project(all, rows));
    }
    Alias fulfilled = Attributes.as(new Substitution(matched).in(condition), "fulfilled");
    List<NamedExpression> checked = new ArrayList<>(own);
    checked.addAll(matched.values());
    checked.add(fulfilled);
    List<NamedExpression> shown = new ArrayList<>(own);
    for (Attribute column : found) {
      Expression none = Literal$.MODULE$.create(null, column.dataType());
      shown.add(Attributes.as(new If(fulfilled.toAttribute(), matched.get(column.exprId()), none), column));
    }
    return Attributes.project(shown, Attributes.project(checked, Attributes.project(all, rows)));
  }

  private static Attribute ofType(Attribute found, Attribute wanted) {
    if (!DataTypeUtils.sameType(found.dataType(), wanted.dataType())) {
      throw Refusals.plain(
          "metadata-changed",
          "the type of column " + wanted.name() + " changed while the statement was planned: try again");
    }
    return found;
  }
}
