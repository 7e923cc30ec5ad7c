package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;

/**
 * A table store, as a session's settings {@code spark.sql.catalog.<name>.<setting>} name it.
 *
 * @param catalog the catalog's name in Spark
 * @param settings what follows the name, such as {@code uri}
 * @param byProgram whether whoever started the JVM has set all of them, and not somebody who has a session in it
 */
record Place(String catalog, Map<String, String> settings, boolean byProgram) {
  /** Makes a request to this store. */
  ObjectNode request(String operation) {
    ObjectNode request = PythonSide.request(operation).put("catalog", catalog).put("by_program", byProgram);
    ObjectNode given = request.putObject("settings");
    settings.forEach(given::put);
    return request;
  }

  /** Makes a request about a table of this store. */
  ObjectNode request(String operation, String database, String table) {
    return request(operation).put("database", database).put("table", table);
  }
}
