package tablestore.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.runtime.AbstractPartialFunction;

/** Puts other columns in the place of some in expressions. */
final class Substitution extends AbstractPartialFunction<Expression, Expression> {
  private final Map<ExprId, Attribute> columns;

  Substitution(Map<ExprId, Attribute> columns) {
    this.columns = columns;
  }

  /** Returns the expression with the other columns. */
  Expression in(Expression expression) {
    return expression.transform(this);
  }

  @Override
  public boolean isDefinedAt(Expression part) {
    return part instanceof Attribute column && columns.containsKey(column.exprId());
  }

  @Override
  public Expression apply(Expression part) {
    return columns.get(((Attribute) part).exprId());
  }
}
