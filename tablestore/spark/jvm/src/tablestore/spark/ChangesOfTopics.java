package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads topics whose messages are changes in batches, and refuses those whose rows would be wrong without their kinds.
 *
 * <p>Python says of a table what its messages are ({@code tablestore/topics/kinds.py}). Of a topic with a primary key a
 * query gets the last row of each. One without has only messages: a query has to name {@code _kind}, which is known
 * when it is optimized, since a DataFrame may get further columns until then. An insertion into a table with the topic's
 * key applies its changes (decision 129), if each row that it writes is made of one row of the topic.
 */
final class ChangesOfTopics extends Rule<LogicalPlan> {
  /** Metadata of the column {@code _kind}: the columns of the topic's primary key. */
  private static final String KEY = "tablestore.key-of-changes";

  /** Metadata of the column {@code _kind}: the code and the sentence of the refusal if no part of a query names it. */
  private static final String CODE = "tablestore.without-kind.code";

  private static final String MESSAGE = "tablestore.without-kind.message";

  /**
   * Returns the rows that a query reads.
   *
   * @param rows what Python has read
   * @param visible the columns of {@code SELECT *}
   * @param hidden columns that the query may name later
   */
  static LogicalPlan read(
      TablestoreTable table, LogicalPlan rows, Seq<AttributeReference> visible, List<Attribute> hidden) {
    JsonNode changes = table.description.path("changes");
    if (changes.isMissingNode()) {
      boolean topic = table.location().isEmpty();
      return topic ? NativeReads.checked(rows, visible, hidden) : NativeReads.named(rows, visible, hidden);
    }
    List<Attribute> marked = hidden.stream().map(column -> isKind(column) ? marked(column, changes) : column).toList();
    if (changes.has("refusal")) {
      return NativeReads.named(rows, visible, marked); // deletes may have nulls where the table has none
    }
    // A condition may be computed for a row before it is left out, and raises no error for a null.
    return NativeReads.named(rows, visible, marked, ChangesOfTopics::present);
  }

  private static Attribute marked(Attribute kind, JsonNode changes) {
    MetadataBuilder found = new MetadataBuilder().withMetadata(kind.metadata());
    found.putStringArray(KEY, TablestoreTable.names(changes, "key").toArray(new String[0]));
    JsonNode refusal = changes.path("refusal");
    if (!refusal.isMissingNode()) {
      found.putString(CODE, refusal.get("code").asText()).putString(MESSAGE, refusal.get("message").asText());
    }
    return kind.withMetadata(found.build());
  }

  private static LogicalPlan present(LogicalPlan last) {
    return new Filter(new Not(isGone(Rereads.byName(last, TablestoreTable.KIND))), last);
  }

  private static Expression isGone(Expression kind) {
    return new In(kind, Attributes.seq(List.of(Literal$.MODULE$.apply("-D"), Literal$.MODULE$.apply("-U"))));
  }

  private static boolean isKind(Attribute column) {
    return column.name().equals(TablestoreTable.KIND);
  }

  /** Returns the column {@code _kind} that {@link #read} has marked, if a node is where it comes from. */
  private static Alias source(LogicalPlan node) {
    if (node instanceof Project project) {
      for (NamedExpression column : CollectionConverters.asJava(project.projectList())) {
        if (column instanceof Alias alias && alias.explicitMetadata().exists(given -> given.contains(KEY))) {
          return alias;
        }
      }
    }
    return null;
  }

  // ------------------------------------------------------------------------------------------------ refusals

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof V2CreateTableAsSelectPlan) {
      return plan; // its rows are inserted by a statement of their own
    }
    List<Alias> kinds = new ArrayList<>();
    Set<Object> named = new HashSet<>();
    plan.foreachWithSubqueries(
        node -> {
          Alias kind = source((LogicalPlan) node);
          if (kind != null) {
            kinds.add(kind);
          }
          for (Expression expression : CollectionConverters.asJava(((LogicalPlan) node).expressions())) {
            named.addAll(Attributes.ids(expression));
          }
          return null;
        });
    for (Alias kind : kinds) {
      Metadata given = kind.explicitMetadata().get();
      if (given.contains(CODE) && !named.contains(kind.exprId())) {
        throw Refusals.plain(given.getString(CODE), given.getString(MESSAGE));
      }
    }
    return plan;
  }

  // ------------------------------------------------------------------------------------------------ insertions

  /**
   * Returns the changes that an insertion applies to its table, as rows of its columns with a kind; null if it inserts
   * the rows that its query has.
   */
  static LogicalPlan written(LogicalPlan query, TablestoreTable target) {
    if (!target.deletesByKey()) {
      return null;
    }
    List<Expression> key = new ArrayList<>(target.primaryKey().stream().map(name -> find(query, name)).toList());
    return changes(query, key);
  }

  private static Expression find(LogicalPlan query, String name) {
    return Rereads.byName(query, name);
  }

  /**
   * Returns a query with the kind of each row; null if its rows are no changes.
   *
   * @param key what the columns of the target's key are in the query; this follows them to the topic's columns
   */
  private static LogicalPlan changes(LogicalPlan query, List<Expression> key) {
    if (query instanceof SubqueryAlias alias) {
      return changes(alias.child(), key);
    }
    if (query instanceof View view) {
      return changes(view.child(), key);
    }
    if (query instanceof Filter filter && source(filter.child()) == null) {
      LogicalPlan rows = filter.condition().deterministic() ? changes(filter.child(), key) : null;
      return rows == null ? null : chosen(rows, filter.condition());
    }
    if (!(query instanceof Project project)) {
      return null;
    }
    key.replaceAll(column -> below(column, project));
    LogicalPlan origin = project.child() instanceof Filter filter ? filter.child() : project.child();
    Alias kind = source(origin);
    if (kind != null) {
      boolean applies = !names(project, kind) && isKey(kind, key, origin);
      return applies ? withKind(project, origin, kind.toAttribute()) : null;
    }
    LogicalPlan rows = changes(project.child(), key);
    return rows == null ? null : withKind(project, rows, Rereads.byName(rows, TablestoreTable.KIND));
  }

  /** Returns whether a query itself asks for the kinds. */
  private static boolean names(Project project, Alias kind) {
    return NativeReads.names(project, Set.of(kind.exprId()));
  }

  /**
   * Returns whether the table's key is the key that the topic declares. Changes of another key would come from rows
   * whose order is not known, and a delete of one row would remove that of another.
   */
  private static boolean isKey(Alias kind, List<Expression> key, LogicalPlan origin) {
    Set<String> found = new HashSet<>();
    for (Expression column : key) {
      if (!(column instanceof Attribute attribute) || !origin.outputSet().contains(attribute)) {
        return false;
      }
      found.add(attribute.name());
    }
    Set<String> declared = Set.of(kind.explicitMetadata().get().getStringArray(KEY));
    return found.size() == key.size() && found.equals(declared);
  }

  /** Returns what a column of a project is in its child, if each value has another one there; else as it is. */
  private static Expression below(Expression column, Project project) {
    for (NamedExpression made : CollectionConverters.asJava(project.projectList())) {
      if (column instanceof Attribute wanted && made instanceof Alias alias && alias.exprId().equals(wanted.exprId())) {
        return plain(alias.child());
      }
    }
    return column;
  }

  /** Returns a value without checks, and without casts that leave each value as it is. */
  static Expression plain(Expression value) {
    if (value instanceof AssertNotNull checked) {
      return plain(checked.child());
    }
    if (value instanceof CheckOverflowInTableInsert checked) {
      return plain(checked.child());
    }
    return value instanceof Cast cast && isOneToOne(cast) ? plain(cast.child()) : value;
  }

  /**
   * Returns whether a cast gives different values different ones, in every session. Large integers are equal as DOUBLE.
   * Local times are equal as TIMESTAMP where a clock skips an hour or a day, and instants as TIMESTAMP_NTZ where it is
   * put back.
   */
  private static boolean isOneToOne(Cast cast) {
    DataType from = cast.child().dataType();
    DataType to = cast.dataType();
    if (from.equals(to)) {
      return true;
    }
    if (to instanceof StringType) {
      return from instanceof IntegralType || from instanceof DateType || from instanceof StringType;
    }
    if (from instanceof DateType) {
      return to instanceof TimestampNTZType;
    }
    if (from instanceof IntegralType && to instanceof IntegralType) {
      return Cast.canUpCast(from, to) || cast.evalMode() == EvalMode.ANSI(); // which raises an error for others
    }
    boolean exact = from instanceof IntegralType || from instanceof DecimalType;
    return exact && to instanceof DecimalType
        ? Cast.canUpCast(from, to)
        : from instanceof FloatType && to instanceof DoubleType;
  }

  /** Makes a row that a query leaves out a delete of its key: its former row may have been written. */
  private static LogicalPlan chosen(LogicalPlan rows, Expression condition) {
    Attribute kind = Rereads.byName(rows, TablestoreTable.KIND);
    List<NamedExpression> columns = new ArrayList<>();
    CollectionConverters.asJava(rows.output()).stream().filter(column -> column != kind).forEach(columns::add);
    Expression deleted = Literal$.MODULE$.apply("-D");
    columns.add(
        Attributes.as(
            new CaseWhen(
                Attributes.seq(List.of(new Tuple2<>(isGone(kind), deleted), new Tuple2<>(condition, (Expression) kind))),
                new Some<>(deleted)),
            TablestoreTable.KIND));
    return Attributes.project(columns, rows);
  }

  /** Returns a project with the kind. */
  private static LogicalPlan withKind(Project project, LogicalPlan rows, Attribute kind) {
    List<NamedExpression> columns = new ArrayList<>();
    for (NamedExpression column : CollectionConverters.asJava(project.projectList())) {
      Expression value = column instanceof Alias alias ? alias.child() : null;
      Expression written = value == null ? null : unlessMissing(value, kind);
      columns.add(written == value ? column : Attributes.as(written, column.toAttribute()));
    }
    columns.add(kind);
    return Attributes.project(columns, rows);
  }

  /**
   * Returns what an insertion writes to a column. It checks that columns and fields which are NOT NULL have values. Those
   * of a row that is gone may lack them, and are null.
   */
  private static Expression unlessMissing(Expression value, Attribute kind) {
    Expression missing = null;
    for (Expression checked : checked(value, new ArrayList<>())) {
      Expression isNull = new IsNull(unchecked(checked));
      missing = missing == null ? isNull : new Or(missing, isNull);
    }
    if (missing == null) {
      return value;
    }
    Expression none = Literal$.MODULE$.create(null, value.dataType());
    return new CaseWhen(Attributes.seq(List.of(new Tuple2<>(new And(isGone(kind), missing), none))), new Some<>(value));
  }

  private static List<Expression> checked(Expression value, List<Expression> found) {
    if (value instanceof AssertNotNull check) {
      found.add(check.child());
    }
    CollectionConverters.asJava(value.children()).forEach(child -> checked(child, found));
    return found;
  }

  private static Expression unchecked(Expression value) {
    return value instanceof AssertNotNull check
        ? unchecked(check.child())
        : (Expression) value.mapChildren(child -> unchecked((Expression) child));
  }
}
