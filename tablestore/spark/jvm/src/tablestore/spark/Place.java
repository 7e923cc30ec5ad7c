package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;

/**
 * A table store, as a session's settings {@code spark.sql.catalog.<name>.<setting>} name it.
 *
 * @param catalog the catalog's name in Spark
 * @param settings what follows the name, such as {@code uri}
 */
record Place(String catalog, Map<String, String> settings) {
  /** Makes a request to this store. */
  ObjectNode request(String operation) {
    ObjectNode request = PythonSide.request(operation).put("catalog", catalog);
    ObjectNode given = request.putObject("settings");
    settings.forEach(given::put);
    return request;
  }

  /** Makes a request about a table of this store. */
  ObjectNode request(String operation, String database, String table) {
    return request(operation).put("database", database).put("table", table);
  }
}
