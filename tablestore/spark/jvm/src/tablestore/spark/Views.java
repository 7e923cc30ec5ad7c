package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Writes a view of Spark's as the catalog keeps it, and reads it back. */
final class Views {
  private static final String COMMENT = "comment";

  private Views() {}

  /** Adds {@code query}, {@code columns}, {@code context}, {@code properties} and {@code comment} to a request. */
  static void describe(View view, Place place, ObjectNode request) {
    request.put("query", view.queryText()).put("columns", view.schema().json());
    ObjectNode context = request.putObject("context");
    if (view.currentCatalog() != null && !view.currentCatalog().equals(place.catalog())) {
      context.put("catalog", view.currentCatalog()); // else the one that has the view, whatever a session calls it
    }
    put(context.putArray("namespace"), view.currentNamespace());
    view.sqlConfigs().forEach(context.putObject("configs")::put);
    context.put("schema_mode", view.schemaMode());
    put(context.putArray("query_columns"), view.queryColumnNames());
    Map<String, String> properties = new HashMap<>(view.properties());
    request.put(COMMENT, properties.remove(COMMENT));
    ObjectNode kept = request.putObject("properties");
    properties.forEach(kept::put);
  }

  /** Makes a view of what the catalog keeps. */
  static View of(JsonNode description, Place place) {
    JsonNode context = description.get("context");
    View.Builder builder = new View.Builder();
    builder.withSchema((StructType) DataType.fromJson(description.get("columns").asText()));
    builder.withProperties(TablestoreCatalog.texts(description.get("properties")));
    if (!description.path(COMMENT).isNull()) {
      builder.withComment(description.get(COMMENT).asText());
    }
    return builder
        .withQueryText(description.get("query").asText())
        .withCurrentCatalog(context.path("catalog").asText(place.catalog()))
        .withCurrentNamespace(texts(context.get("namespace")))
        .withSqlConfigs(TablestoreCatalog.texts(context.get("configs")))
        .withSchemaMode(context.get("schema_mode").isNull() ? null : context.get("schema_mode").asText())
        .withQueryColumnNames(texts(context.get("query_columns")))
        .build();
  }

  private static void put(ArrayNode node, String[] values) {
    for (String value : values == null ? new String[0] : values) {
      node.add(value);
    }
  }

  private static String[] texts(JsonNode node) {
    String[] found = new String[node.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = node.get(i).asText();
    }
    return found;
  }
}
