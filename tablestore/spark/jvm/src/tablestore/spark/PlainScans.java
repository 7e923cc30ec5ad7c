package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Field;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Seq;

/**
 * Scans a version's files without Delta's planning.
 *
 * <p>Delta finds the files of a query by jobs of Spark, which for a small query take longer than the query. Python has
 * them in memory. A version without deletion vectors is read as plain Parquet, one with vectors by Delta's Parquet
 * format; one with column mapping or widened types is left to Delta. The rule runs each time that a query is optimized,
 * so that a DataFrame that is used again reads the newest version, as Delta's own does.
 */
public final class PlainScans extends Rule<LogicalPlan> {
  private static final String DELTA = "org.apache.spark.sql.delta.files.TahoeLogFileIndex";
  private static final int MOST_TABLES = 4096;

  /** The requests by session and location. A session asks with its own rights only. */
  private static final Map<String, ObjectNode> REQUESTS =
      Collections.synchronizedMap(
          new LinkedHashMap<>(16, 0.75f, true) {
            @Override
            protected boolean removeEldestEntry(Map.Entry<String, ObjectNode> eldest) {
              return size() > MOST_TABLES;
            }
          });

  /** The answers to a query, so that all its parts read the same version. */
  private static final OfQuery<ObjectNode, Answer> ANSWERS = new OfQuery<>();

  private final SparkSession session;

  PlainScans(SparkSession session) {
    this.session = session;
  }

  /** Says how a session asks for the files of a table; Python calls it for tables that are read without a catalog. */
  public static void know(org.apache.spark.sql.SparkSession session, String location, String request) {
    if (PythonSide.isThere()) {
      know((SparkSession) session, location, PythonSide.parsed(request));
    }
  }

  static void know(SparkSession session, String location, ObjectNode request) {
    REQUESTS.put(key(session, Rereads.qualified(session, new Path(location))), request);
  }

  private static String key(SparkSession session, Path location) {
    return session.sessionUUID() + " " + location;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof LogicalRelation relation) {
      return plain(relation);
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  private LogicalPlan plain(LogicalRelation relation) {
    if (!(relation.relation() instanceof HadoopFsRelation delta)
        || !delta.location().getClass().getName().equals(DELTA)
        || !((Seq<?>) Rereads.asked(delta.location(), "partitionFilters")).isEmpty()) { // the path of a partition
      return relation;
    }
    Path location = delta.location().rootPaths().head();
    ObjectNode known = REQUESTS.get(key(named((SparkSession) delta.sparkSession()), location));
    if (known == null) {
      return relation;
    }
    JsonNode answer = answer(known, delta);
    if (answer.path("hides").asBoolean()) {
      relation = WholeFiles.ofEveryRowGroup(relation);
      delta = (HadoopFsRelation) relation.relation();
    }
    if (!answer.has("version") || (answer.get("vectors").asBoolean() && !VectorScans.areUsual(session))) {
      return relation;
    }
    FileIndex files = new VersionFiles(known, location, answer, delta.partitionSchema());
    if (answer.get("vectors").asBoolean()) {
      return VectorScans.plan(relation, files, session);
    }
    HadoopFsRelation plain =
        new HadoopFsRelation(
            files,
            delta.partitionSchema(),
            delta.dataSchema(),
            Option.empty(),
            new ParquetFileFormat(),
            delta.options(),
            session);
    return relation.copy(plain, relation.output(), Option.empty(), false, relation.stream());
  }

  /**
   * Returns the session that has named the tables of this one. Spark plans what a session keeps in memory in a clone of
   * it; any other session, such as one that reads a view of all sessions, asks with its own rights.
   */
  private SparkSession named(SparkSession origin) {
    if (origin == session) {
      return session;
    }
    try {
      Field field = SparkSession.class.getDeclaredField("parentSessionState");
      field.setAccessible(true);
      Option<?> parent = (Option<?>) field.get(session);
      return parent.isDefined() && parent.get() == origin.sessionState() ? origin : session;
    } catch (ReflectiveOperationException e) {
      return session; // Delta plans such queries
    }
  }

  private static JsonNode answer(ObjectNode known, HadoopFsRelation delta) {
    long planned = Rereads.versionOf(delta.location());
    boolean pinned = Rereads.isPinned(delta.location());
    ObjectNode request = known.deepCopy().put("operation", "plain_version").put("planned", planned).put("pinned", pinned);
    ObjectNode key = known.deepCopy().put("pinned", pinned).put("version", pinned ? planned : -1);
    Answer found = ANSWERS.answer(key, () -> new Answer(PythonSide.ask(request), delta.dataSchema()));
    if (found.columns.equals(delta.dataSchema())) {
      return found.answer;
    }
    JsonNode hides = found.answer.path("hides"); // the same files, whatever columns are read of them
    return JsonNodeFactory.instance.objectNode().put("hides", hides.asBoolean());
  }

  /** An answer of Python, with the columns of the relation that it is for. */
  private record Answer(JsonNode answer, StructType columns) {}
}
