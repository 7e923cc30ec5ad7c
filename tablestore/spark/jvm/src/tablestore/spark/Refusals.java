package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
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
import scala.Some;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Turns errors of Python into Spark's exceptions. */
final class Refusals {
  private static final String CONDITION = "USER_RAISED_EXCEPTION";

  /** The SQLSTATE of Spark's own errors of data sources. */
  private static final String STATE = "KD000";

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

  /**
   * Returns an {@code AnalysisException} with a code and a sentence of ours.
   *
   * <p>It has a condition and a state, too: a script asks each error for them, and fails itself if one has none. The
   * condition is one of Spark's, whose text is its one parameter: Spark and PySpark look the text of a condition up.
   */
  static RuntimeException plain(String code, String message) {
    String sentence = "[tablestore: " + code + "] " + message;
    return sneaky(
        new AnalysisException(
            sentence,
            Option.empty(),
            Option.empty(),
            Option.empty(),
            new Some<>(CONDITION),
            Map$.MODULE$.from(CollectionConverters.asScala(Map.of("errorMessage", sentence))),
            new QueryContext[0],
            new Some<>(STATE),
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
