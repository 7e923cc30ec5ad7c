package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;

/** A join's condition: the equalities by which rows are looked up, and what their matches have to fulfil besides. */
final class JoinKeys {
  /** The values that are looked up: expressions over the other side. */
  final List<Expression> values = new ArrayList<>();

  /** The table's columns that have to equal them, each of them once. */
  final List<String> columns = new ArrayList<>();

  /** The other conditions. */
  final List<Expression> others = new ArrayList<>();

  private final Map<ExprId, String> table;

  /**
   * Splits a condition.
   *
   * @param conditions the conditions that a match has to fulfil
   * @param table the table's columns, by their ids in the plan
   */
  JoinKeys(List<Expression> conditions, Map<ExprId, String> table) {
    this.table = new HashMap<>(table);
    for (Expression condition : conditions) {
      if (!(condition instanceof EqualTo equal)
          || !(isKey(equal.left(), equal.right()) || isKey(equal.right(), equal.left()))) {
        others.add(condition);
      }
    }
  }

  /** Takes the equality of a value and a column of the table, if it is one. */
  private boolean isKey(Expression value, Expression compared) {
    Expression column = compared instanceof Cast cast && isExact(cast) ? cast.child() : compared;
    if (!(column instanceof Attribute found) || !table.containsKey(found.exprId())) {
      return false;
    }
    Set<ExprId> both = new HashSet<>(Attributes.ids(value));
    both.retainAll(table.keySet());
    String name = table.get(found.exprId());
    if (!both.isEmpty() || columns.contains(name)) {
      return false;
    }
    columns.add(name);
    values.add(column == compared ? value : narrowed(value, (Cast) compared));
    return true;
  }

  /** Returns whether a cast gives different values different results. */
  private static boolean isExact(Cast cast) {
    DataType from = cast.child().dataType();
    DataType to = cast.dataType();
    boolean counts = from instanceof IntegralType || from instanceof DecimalType;
    return Cast.canUpCast(from, to)
        && ((from instanceof IntegralType && to instanceof IntegralType)
            || (counts && to instanceof DecimalType)
            || (from instanceof FloatType && to instanceof DoubleType));
  }

  /** Returns a value in the type of the column; null, which equals nothing, if the column cannot have it. */
  private static Expression narrowed(Expression value, Cast widened) {
    DataType type = widened.child().dataType();
    Expression tried = new Cast(value, type, widened.timeZoneId(), EvalMode.TRY());
    Expression again = new Cast(tried, widened.dataType(), widened.timeZoneId(), EvalMode.TRY());
    return new If(new EqualTo(again, value), tried, Literal$.MODULE$.create(null, type));
  }
}
