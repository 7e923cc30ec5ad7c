package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.Option;
import scala.collection.immutable.Map$;

/** Turns errors of Python into Spark's exceptions. */
final class Refusals {
  private Refusals() {}

  /** Returns the exception for {@code {"code", "message", "database"?, "table"?}}. */
  static RuntimeException of(JsonNode error) {
    String code = error.get("code").asText();
    String database = error.path("database").asText("");
    String table = error.path("table").asText("");
    String message = error.get("message").asText();
    if (database.isEmpty()) {
      return plain(code, message); // a procedure names tables in its arguments
    }
    switch (code) {
      case "table-not-found":
        return sneaky(new NoSuchTableException(Identifier.of(new String[] {database}, table)));
      case "view-not-found":
        return sneaky(new NoSuchViewException(Identifier.of(new String[] {database}, table)));
      case "table-exists":
        return sneaky(new TableAlreadyExistsException(Identifier.of(new String[] {database}, table)));
      case "database-not-found":
        return sneaky(new NoSuchNamespaceException(new String[] {database}));
      case "database-exists":
        return sneaky(new NamespaceAlreadyExistsException(new String[] {database}));
      case "database-not-empty":
        return sneaky(new NonEmptyNamespaceException(new String[] {database}));
      default:
        return plain(code, message);
    }
  }

  /** Returns an {@code AnalysisException} with a code and a sentence of ours. */
  static RuntimeException plain(String code, String message) {
    return sneaky(
        new AnalysisException(
            "[tablestore: " + code + "] " + message,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Option.empty(),
            Map$.MODULE$.<String, String>empty(),
            new QueryContext[0],
            Option.empty(),
            Option.empty()));
  }

  /** Returns an exception of Spark for {@code throw}, checked or not. */
  static RuntimeException thrown(Throwable error) {
    return sneaky(error);
  }

  /** Throws a checked exception without declaring it, as Spark's Scala code does. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable error) throws E {
    throw (E) error;
  }
}
