package tablestore.spark;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.logical.InsertOnlyMerge;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decides whether the table may have the keys of the rows that a MERGE inserts.
 *
 * <p>If its condition compares the whole key with that of the inserted row, and nothing else, a row without a match has a
 * new key. With another condition the table may have it, in a row that does not match.
 */
final class InsertedKeys {
  private InsertedKeys() {}

  /** Returns whether a MERGE inserts keys that the table may have. */
  static boolean mayBeStored(WriteDelta write, TablestoreTable table) {
    if (!(write.query() instanceof MergeRows merge) || write.projections().rowProjection().isEmpty()) {
      return false; // it has no inserts
    }
    for (MergeRows.Instruction inserted : CollectionConverters.asJava(merge.notMatchedInstructions())) {
      Map<String, Expression> key = new HashMap<>();
      for (String name : table.primaryKey()) {
        List<Expression> row = CollectionConverters.asJava(inserted.outputs().head());
        key.put(name, RowLevelWrites.at(row, write.projections().rowProjection().get(), name));
      }
      if (!comparesTheKey(write.condition(), (LogicalPlan) write.originalTable(), key)) {
        return true;
      }
    }
    return false;
  }

  /** Returns the same of a MERGE that does nothing else. */
  static boolean mayBeStored(InsertOnlyMerge write, TablestoreTable table) {
    List<Attribute> inserted = CollectionConverters.asJava(write.query().output());
    Map<String, Expression> key = new HashMap<>();
    int place = 0;
    for (Attribute column : CollectionConverters.asJava(((LogicalPlan) write.table()).output())) {
      if (table.primaryKey().contains(column.name())) {
        key.put(column.name(), inserted.get(place));
      }
      place++;
    }
    LogicalPlan rows = write.query();
    while (rows instanceof Project project) {
      key.replaceAll((name, value) -> below(value, project));
      rows = project.child();
    }
    return !(rows instanceof Join join)
        || join.joinType() != LeftAnti$.MODULE$
        || join.condition().isEmpty()
        || !comparesTheKey(join.condition().get(), (LogicalPlan) write.table(), key);
  }

  private static Expression below(Expression value, Project project) {
    for (NamedExpression made : CollectionConverters.asJava(project.projectList())) {
      if (bare(value) instanceof Attribute wanted && made.exprId().equals(wanted.exprId())) {
        return (Expression) made;
      }
    }
    return value;
  }

  /** Returns whether a condition compares each column of the key with the value that it has in the inserted row. */
  private static boolean comparesTheKey(Expression condition, LogicalPlan target, Map<String, Expression> key) {
    Set<String> compared = new HashSet<>();
    for (Expression part : Attributes.conjuncts(condition)) {
      String name = part instanceof EqualTo equal ? comparedKey(equal, target, key) : null;
      if (name == null) {
        return false;
      }
      compared.add(name);
    }
    return compared.equals(key.keySet());
  }

  /** Returns the column of the key that an equality compares with the inserted value; null if it compares others. */
  private static String comparedKey(EqualTo equal, LogicalPlan target, Map<String, Expression> key) {
    for (Attribute column : CollectionConverters.asJava(target.output())) {
      Expression value = key.get(column.name());
      if (value != null
          && (isBoth(equal.left(), column, equal.right(), value)
              || isBoth(equal.right(), column, equal.left(), value))) {
        return column.name();
      }
    }
    return null;
  }

  private static boolean isBoth(Expression stored, Attribute column, Expression given, Expression value) {
    return bare(stored) instanceof Attribute found
        && found.exprId().equals(column.exprId())
        && bare(given).semanticEquals(bare(value));
  }

  /** Returns a value without a name, checks for nulls, and casts that leave each value as it is. */
  private static Expression bare(Expression value) {
    return value instanceof Alias named ? bare(named.child()) : ChangesOfTopics.plain(value);
  }
}
