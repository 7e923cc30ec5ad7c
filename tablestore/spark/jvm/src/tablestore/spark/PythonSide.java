package tablestore.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.function.Function;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import py4j.Py4JException;

/** The one Python process that works for this JVM: the driver, where it is one, or else a child process. */
public final class PythonSide {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** The beginning of Py4J's message if Python has answered by an exception. */
  private static final String RAISED = "An exception was raised by the Python Proxy";

  private static Python registered;
  private static SparkContext context;

  private PythonSide() {}

  /** Takes the Python process that answers from now on. It calls this itself. */
  public static synchronized void register(Python python) {
    registered = python;
    context = SparkSession.active().sparkContext();
    PythonSide.class.notifyAll();
  }

  /** Returns whether a Python process answers already. */
  static synchronized boolean isThere() {
    return registered != null;
  }

  /** Makes an empty request. */
  static ObjectNode request(String operation) {
    return JSON.createObjectNode().put("operation", operation);
  }

  /** Parses a request that Python has made. */
  static ObjectNode parsed(String request) {
    try {
      return (ObjectNode) JSON.readTree(request);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("no JSON: " + request, e);
    }
  }

  /** Returns the value that Python answers; throws what it refuses. */
  static JsonNode ask(ObjectNode request) {
    return valueOf((String) call(python -> python.answer(request.toString())));
  }

  /** Makes Python do what needs a session; {@code rows} are those to write, or null. */
  static JsonNode give(ObjectNode request, SparkSession session, Dataset<Row> rows) {
    return valueOf((String) call(python -> python.take(request.toString(), session, rows)));
  }

  /** Returns the rows that Python reads, or makes of others; {@code rows} are those, or null. */
  @SuppressWarnings("unchecked")
  static Dataset<Row> read(ObjectNode request, SparkSession session, Dataset<Row> rows) {
    Object answer = call(python -> python.read(request.toString(), session, rows));
    if (answer instanceof String) {
      valueOf((String) answer);
    }
    return (Dataset<Row>) answer;
  }

  /** Asks a question; throws what Spark threw while Python worked on it. */
  private static Object call(Function<Python, Object> question) {
    Object answer = answer(question);
    if (answer instanceof Throwable thrown) {
      throw Refusals.thrown(thrown);
    }
    return answer;
  }

  private static Object answer(Function<Python, Object> question) {
    Python python = python();
    try {
      return question.apply(python);
    } catch (Py4JException e) {
      if (e.getMessage() != null && e.getMessage().startsWith(RAISED)) {
        throw new IllegalStateException("Tablestore's Python side raised an exception: " + e.getMessage(), e);
      }
      forget(python);
      throw Refusals.plain(
          "python-side",
          "Tablestore's Python process ended in the middle of the statement, or was killed. What it was about to write is "
              + "in the table or not, as its history says; the next statement starts another process");
    }
  }

  private static synchronized void forget(Python python) {
    if (registered == python) {
      registered = null;
      PythonProcess.stop();
    }
  }

  private static JsonNode valueOf(String answer) {
    JsonNode parsed;
    try {
      parsed = JSON.readTree(answer);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("Tablestore's Python side answered with what is no JSON: " + answer, e);
    }
    if (parsed.has("error")) {
      throw Refusals.of(parsed.get("error"));
    }
    return parsed.get("value");
  }

  private static synchronized Python python() {
    if (registered != null && context.isStopped()) {
      registered = null; // what it knows belongs to that context
      PythonProcess.stop();
    }
    if (registered == null) {
      PythonProcess.start();
      PythonProcess.awaitRegistration(PythonSide.class, () -> registered != null);
    }
    return registered;
  }
}
