package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Text in values, also in those of structs, arrays and maps.
 *
 * @param byName whether the fields of structs have the names of those that they are written into, or their places
 */
record Text(boolean byName) {
  /** Returns a type with those types in the place of text that are wanted there, and to which text can be cast. */
  DataType as(DataType type, DataType wanted) {
    if (type instanceof StringType) {
      return !(wanted instanceof StringType) && Cast.canAnsiCast(type, wanted) ? wanted : type;
    }
    if (type instanceof ArrayType list && wanted instanceof ArrayType other) {
      return new ArrayType(as(list.elementType(), other.elementType()), list.containsNull());
    }
    if (type instanceof MapType map && wanted instanceof MapType other) {
      return new MapType(
          as(map.keyType(), other.keyType()), as(map.valueType(), other.valueType()), map.valueContainsNull());
    }
    return type instanceof StructType struct && wanted instanceof StructType other ? ofFields(struct, other) : type;
  }

  private StructType ofFields(StructType type, StructType wanted) {
    List<StructField> fields = new ArrayList<>();
    for (StructField field : type.fields()) {
      StructField other = field(field.name(), fields.size(), wanted);
      fields.add(
          other == null
              ? field
              : new StructField(field.name(), as(field.dataType(), other.dataType()), field.nullable(), field.metadata()));
    }
    return new StructType(fields.toArray(new StructField[0]));
  }

  private StructField field(String name, int place, StructType wanted) {
    if (byName) {
      return Attributes.field(wanted, name);
    }
    return place < wanted.length() ? wanted.fields()[place] : null;
  }
}
