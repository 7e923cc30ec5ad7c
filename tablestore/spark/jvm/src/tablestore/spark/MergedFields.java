package tablestore.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes {@code SET s.a = x} of a MERGE an assignment of the whole struct, as Spark does once the statement is resolved.
 *
 * <p>Delta's rule for its own tables looks at every MERGE, and fails for a field as a key. It sees one if the statement
 * is resolved in several steps, that is, as soon as something in it is cast.
 */
final class MergedFields extends Rule<LogicalPlan> {
  private final SparkSession session;

  MergedFields(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof MergeIntoTable merge) || !namesFields(merge)) {
      return plan;
    }
    List<String> alias = merge.targetTable() instanceof SubqueryAlias named ? List.of(named.alias()) : null;
    LogicalPlan target = Targets.withoutAlias(merge.targetTable());
    Seq<String> parts = target instanceof UnresolvedRelation relation ? relation.multipartIdentifier() : null;
    TablestoreTable table = parts == null ? null : OurName.table(session, parts);
    if (table == null) {
      return plan;
    }
    Fields fields = new Fields(alias != null ? alias : OurName.of(session, parts).parts(), table.structType());
    return merge.copy(
        merge.targetTable(),
        merge.sourceTable(),
        merge.mergeCondition(),
        fields.in(merge.matchedActions()),
        merge.notMatchedActions(),
        fields.in(merge.notMatchedBySourceActions()),
        merge.withSchemaEvolution());
  }

  private static boolean namesFields(MergeIntoTable merge) {
    return merge.matchedActions().concat(merge.notMatchedBySourceActions()).exists(
        action ->
            action instanceof UpdateAction update
                && update.assignments().exists(a -> a.key() instanceof UnresolvedAttribute k && k.nameParts().size() > 1));
  }

  /**
   * The columns of the target.
   *
   * @param name the name by which the statement's expressions find it
   */
  private record Fields(List<String> name, StructType columns) {
    Seq<MergeAction> in(Seq<MergeAction> actions) {
      List<MergeAction> found = new ArrayList<>();
      for (MergeAction action : CollectionConverters.asJava(actions)) {
        found.add(action instanceof UpdateAction update ? in(update) : action);
      }
      return Attributes.seq(found);
    }

    private UpdateAction in(UpdateAction update) {
      Map<String, Node> structs = new LinkedHashMap<>();
      List<Assignment> others = new ArrayList<>();
      for (Assignment assignment : CollectionConverters.asJava(update.assignments())) {
        List<StructField> path = path(assignment.key());
        boolean isField = path.size() > 1 && put(structs, path, assignment.value());
        if (!isField) {
          others.add(assignment);
        }
      }
      structs.forEach(
          (column, node) -> {
            List<String> place = new ArrayList<>(name);
            place.add(column);
            others.add(new Assignment(attribute(place), node.value(place, columns.apply(column).dataType())));
          });
      return update.copy(update.condition(), Attributes.seq(others), update.fromStar());
    }

    /** Returns the column that a key names and the fields below it; an empty list if it may be something else. */
    private List<StructField> path(Expression key) {
      if (!(key instanceof UnresolvedAttribute named)) {
        return List.of();
      }
      List<String> parts = CollectionConverters.asJava(named.nameParts());
      for (int length = Math.min(name.size(), parts.size() - 1); length > 0; length--) {
        List<String> end = name.subList(name.size() - length, name.size());
        if (isSame(end, parts.subList(0, length))) {
          List<StructField> found = below(columns, parts.subList(length, parts.size()));
          if (!found.isEmpty()) {
            return found;
          }
        }
      }
      return below(columns, parts);
    }

    private static List<StructField> below(StructType type, List<String> parts) {
      List<StructField> found = new ArrayList<>();
      DataType level = type;
      for (String part : parts) {
        StructField field = level instanceof StructType struct ? Attributes.field(struct, part) : null;
        if (field == null) {
          return List.of();
        }
        found.add(field);
        level = field.dataType();
      }
      return found;
    }

    private static boolean isSame(List<String> names, List<String> others) {
      return IntStream.range(0, names.size()).allMatch(i -> Attributes.isSame(names.get(i), others.get(i)));
    }

    /** Adds a value at its place; returns false if that has one, of which Spark says what is wrong. */
    private static boolean put(Map<String, Node> structs, List<StructField> path, Expression value) {
      Map<String, Node> level = structs;
      for (StructField field : path.subList(0, path.size() - 1)) {
        Node node = level.computeIfAbsent(field.name(), any -> new Node(null, new LinkedHashMap<>()));
        if (node.given() != null) {
          return false;
        }
        level = node.fields();
      }
      return level.putIfAbsent(path.get(path.size() - 1).name(), new Node(value, Map.of())) == null;
    }
  }

  /** A value that is assigned, or what is assigned to the fields of a struct. */
  private record Node(Expression given, Map<String, Node> fields) {
    Expression value(List<String> place, DataType type) {
      if (given != null) {
        return given;
      }
      List<Expression> found = new ArrayList<>();
      for (StructField field : ((StructType) type).fields()) {
        List<String> inner = new ArrayList<>(place);
        inner.add(field.name());
        Node node = fields.get(field.name());
        found.add(Literal$.MODULE$.apply(field.name()));
        found.add(node == null ? attribute(inner) : node.value(inner, field.dataType()));
      }
      return new CreateNamedStruct(Attributes.seq(found));
    }
  }

  private static UnresolvedAttribute attribute(List<String> parts) {
    return new UnresolvedAttribute(Attributes.seq(parts));
  }
}
