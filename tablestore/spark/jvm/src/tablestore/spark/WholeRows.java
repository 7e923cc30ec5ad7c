package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.types.StructField;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A MERGE that needs no stored row: {@code ON} the primary key, whole rows of the source, matched or not.
 *
 * <p>{@code WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *} is what an upsert does, so the join with the
 * table is left out. Its check that no two rows of the source match one row becomes one that no two have one key.
 */
final class WholeRows {
  private final TablestoreTable table;
  private final ProjectingInternalRow columns;
  private final List<Expression> updated;
  private final List<Expression> inserted;
  private final Join join;

  private WholeRows(
      TablestoreTable table,
      ProjectingInternalRow columns,
      List<Expression> updated,
      List<Expression> inserted,
      Join join) {
    this.table = table;
    this.columns = columns;
    this.updated = updated;
    this.inserted = inserted;
    this.join = join;
  }

  /** Returns the rows to write; null if the statement is another one. */
  static LogicalPlan of(WriteDelta write, TablestoreTable table) {
    if (!(write.query() instanceof MergeRows merge)
        || !(merge.child() instanceof Join join)
        || !table.replacesRows()
        || !merge.notMatchedBySourceInstructions().isEmpty()
        || write.projections().rowProjection().isEmpty()) {
      return null;
    }
    List<Expression> updated = only(merge.matchedInstructions());
    List<Expression> inserted = only(merge.notMatchedInstructions());
    if (updated == null || inserted == null) {
      return null;
    }
    WholeRows rows = new WholeRows(table, write.projections().rowProjection().get(), updated, inserted, join);
    return rows.areOfTheSource() && !InsertedKeys.mayBeStored(write, table) ? rows.plan() : null;
  }

  /** Returns the columns of an action that is the only one of its kind, and has no condition. */
  private static List<Expression> only(Seq<MergeRows.Instruction> instructions) {
    if (instructions.size() != 1
        || !(instructions.head() instanceof MergeRows.Keep keep)
        || !keep.condition().equals(Literal$.MODULE$.TrueLiteral())) {
      return null;
    }
    return CollectionConverters.asJava(keep.output());
  }

  /** Returns whether both actions make the same row, of the source's columns alone. */
  private boolean areOfTheSource() {
    for (StructField field : table.structType().fields()) {
      Expression value = of(inserted, field.name());
      if (!value.semanticEquals(of(updated, field.name()))
          || !value.deterministic()
          || !value.references().subsetOf(join.right().outputSet())) {
        return false;
      }
    }
    return true;
  }

  private Expression of(List<Expression> row, String name) {
    Expression value = RowLevelWrites.at(row, columns, name);
    return value instanceof Alias named ? named.child() : value;
  }

  private LogicalPlan plan() {
    List<NamedExpression> row = new ArrayList<>();
    for (StructField field : table.structType().fields()) {
      // Spark took it for NOT NULL if the topic's declaration says so, and what a delete has may be null
      Expression value = Nullability.checked(of(inserted, field.name()), field.nullable(), field.name());
      row.add(Attributes.as(value, field.name()));
    }
    return Attributes.project(row, join.right());
  }
}
