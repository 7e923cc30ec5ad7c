package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A procedure of {@code CALL catalog.sys.name(...)}, which Python runs.
 *
 * @param place the table store
 * @param definition {@code name}, {@code description} and {@code parameters}, each with {@code name}, {@code type},
 *     {@code default} (SQL, if it has one) and {@code comment}
 */
record Procedure(Place place, JsonNode definition) implements UnboundProcedure, BoundProcedure {
  @Override
  public String name() {
    return definition.get("name").asText();
  }

  @Override
  public String description() {
    return definition.get("description").asText();
  }

  @Override
  public BoundProcedure bind(StructType inputType) {
    return this;
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public ProcedureParameter[] parameters() {
    List<ProcedureParameter> found = new ArrayList<>();
    for (JsonNode parameter : definition.get("parameters")) {
      DataType type = DataType.fromDDL(parameter.get("type").asText());
      ProcedureParameter.Builder builder = ProcedureParameter.in(parameter.get("name").asText(), type);
      builder.comment(parameter.get("comment").asText());
      if (parameter.has("default")) {
        builder.defaultValue(parameter.get("default").asText());
      }
      found.add(builder.build());
    }
    return found.toArray(new ProcedureParameter[0]);
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    ObjectNode request = place.request("call").put("procedure", name());
    SparkSession session = SparkSession.active();
    CatalogManager current = session.sessionState().catalogManager();
    request.put("current_catalog", current.currentCatalog().name());
    request.put("current_database", String.join(".", current.currentNamespace()));
    ObjectNode arguments = request.putObject("arguments");
    ProcedureParameter[] parameters = parameters();
    for (int i = 0; i < parameters.length; i++) {
      Object value = input.isNullAt(i) ? null : input.get(i, parameters[i].dataType());
      arguments.putPOJO(parameters[i].name(), value instanceof UTF8String ? value.toString() : value);
    }
    JsonNode answer = PythonSide.give(request, session, null);
    StructType schema = StructType.fromDDL(answer.get("schema").asText());
    List<InternalRow> rows = new ArrayList<>();
    answer.get("rows").forEach(row -> rows.add(internalRow(row, schema)));
    return List.<Scan>of(new Rows(schema, rows.toArray(new InternalRow[0]))).iterator();
  }

  private static InternalRow internalRow(JsonNode row, StructType schema) {
    Object[] values = new Object[schema.length()];
    for (int i = 0; i < values.length; i++) {
      values[i] = row.get(i).isNull() ? null : internal(row.get(i), schema.fields()[i].dataType());
    }
    return new GenericInternalRow(values);
  }

  private static Object internal(JsonNode value, DataType type) {
    if (type.equals(DataTypes.LongType) || type.equals(DataTypes.TimestampType)) {
      return value.asLong(); // a timestamp comes as microseconds
    }
    if (type.equals(DataTypes.IntegerType)) {
      return value.asInt();
    }
    if (type.equals(DataTypes.BooleanType)) {
      return value.asBoolean();
    }
    if (type instanceof ArrayType) {
      List<Object> texts = new ArrayList<>();
      value.forEach(text -> texts.add(UTF8String.fromString(text.asText())));
      return new GenericArrayData(texts.toArray());
    }
    if (type instanceof MapType) {
      List<Object> names = new ArrayList<>();
      List<Object> texts = new ArrayList<>();
      value
          .properties()
          .forEach(
              entry -> {
                names.add(UTF8String.fromString(entry.getKey()));
                texts.add(UTF8String.fromString(entry.getValue().asText()));
              });
      return new ArrayBasedMapData(new GenericArrayData(names.toArray()), new GenericArrayData(texts.toArray()));
    }
    return UTF8String.fromString(value.asText());
  }

  private record Rows(StructType readSchema, InternalRow[] rows) implements LocalScan {}
}
