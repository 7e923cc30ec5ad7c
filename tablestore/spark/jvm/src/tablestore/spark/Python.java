package tablestore.spark;

/**
 * The Python side, which decides everything: names, definitions, writes. Implemented by {@code tablestore.spark.sql.bridge}.
 *
 * <p>Requests and answers are JSON. An answer is {@code {"value": ...}}, or {@code {"error": {...}}} with an error of
 * {@code filestore.errors}.
 */
public interface Python {
  /** Answers a request that needs no session. */
  String answer(String request);

  /**
   * Does what needs a session: writes a {@code Dataset}, or runs a procedure. It returns the answer, or an exception of
   * Spark that ended the work.
   */
  Object take(String request, Object session, Object subject);

  /**
   * Reads what is no plain Delta table, or joins the rows of a {@code Dataset}, which else is null: returns a {@code
   * Dataset}, or a text if the answer is an error.
   */
  Object read(String request, Object session, Object subject);
}
