package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FileSourceMetadataAttribute;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import scala.jdk.javaapi.CollectionConverters;

/** Writes comparisons of a column with values as JSON, by which Python leaves files out. Others leave out nothing. */
final class Conditions {
  private Conditions() {}

  /** Adds a condition that a query's rows have to fulfil, if it is a comparison of a column. */
  static void add(Expression condition, ArrayNode conditions) {
    if (condition instanceof In in && in.value() instanceof Attribute column && isStored(column)) {
      ObjectNode node = begun(conditions, column, "in");
      ArrayNode values = node.putArray("values");
      for (Expression value : CollectionConverters.asJava(in.list())) {
        if (!(value instanceof Literal literal)) {
          conditions.remove(conditions.size() - 1);
          return;
        }
        values.add(Values.text(literal.value(), literal.dataType()));
      }
    } else if (condition instanceof InSet in && in.child() instanceof Attribute column && isStored(column)) {
      ArrayNode values = begun(conditions, column, "in").putArray("values");
      CollectionConverters.asJava(in.hset()).forEach(value -> values.add(Values.text(value, column.dataType())));
    } else if (operator(condition) != null) {
      compared(condition, conditions);
    }
  }

  private static void compared(Expression condition, ArrayNode conditions) {
    Expression left = condition.children().head();
    Expression right = condition.children().last();
    String operator = operator(condition);
    if (left instanceof Literal) {
      Expression other = left;
      left = right;
      right = other;
      operator = operator.replace('<', '?').replace('>', '<').replace('?', '>');
    }
    if (left instanceof Attribute column && isStored(column) && right instanceof Literal literal) {
      String text = Values.text(literal.value(), literal.dataType());
      begun(conditions, column, operator).putArray("values").add(text);
    }
  }

  private static String operator(Expression condition) {
    return condition instanceof EqualTo
        ? "="
        : condition instanceof LessThan
            ? "<"
            : condition instanceof LessThanOrEqual
                ? "<="
                : condition instanceof GreaterThan ? ">" : condition instanceof GreaterThanOrEqual ? ">=" : null;
  }

  /** Returns whether it is a column of the table, and not one of {@code _metadata}, which may have the same name. */
  private static boolean isStored(Attribute column) {
    return column instanceof AttributeReference stored && FileSourceMetadataAttribute.unapply(stored).isEmpty();
  }

  private static ObjectNode begun(ArrayNode conditions, Attribute column, String operator) {
    return conditions.addObject().put("column", column.name()).put("operator", operator);
  }
}
