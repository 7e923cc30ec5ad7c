package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Some;

/** Values of partition columns as Delta writes them: as texts, times in UTC. */
final class Values {
  private Values() {}

  /** Returns the text of a value of Spark; null for null. */
  static String text(Object value, DataType type) {
    return value == null ? null : cast(new Literal(value, type), DataTypes.StringType).toString();
  }

  /** Returns the value of a text. */
  static Object internal(String text, DataType type) {
    return text == null ? null : cast(new Literal(UTF8String.fromString(text), DataTypes.StringType), type);
  }

  /** Returns the row of texts of a schema's columns. */
  static InternalRow row(JsonNode texts, StructType schema) {
    Object[] values = new Object[schema.length()];
    for (int i = 0; i < values.length; i++) {
      values[i] = internal(texts.get(i).isNull() ? null : texts.get(i).asText(), schema.fields()[i].dataType());
    }
    return new GenericInternalRow(values);
  }

  private static Object cast(Literal value, DataType type) {
    return new Cast(value, type, new Some<>("UTC"), EvalMode.LEGACY()).eval(InternalRow.empty());
  }
}
