package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Makes Python rewrite statements that Spark's grammar lacks ({@code tablestore.spark.sql.dialect}). */
final class StatementParser implements ParserInterface {
  /** The words of such statements, so that Python is not asked about all others. */
  private static final Pattern MAYBE =
      Pattern.compile(
          "\\$|\\bWITH\\s*\\(|/\\*\\+\\s*OPTIONS\\b"
              + "|\\b(COMPACT|MATERIALIZED|METADATA|SYSTEM_TIME|TABLE_CHANGES|WATERMARK)\\b"
              // a comment may be before them: dbt writes one before each of its statements
              + "|\\bCREATE\\s+(OR\\s+REPLACE\\s+)?TABLE\\b"
              + "|\\bDESC(RIBE)?\\s+(DETAIL|HISTORY)\\b"
              // commands of Delta and others: tablestore.spark.sql.commands
              + "|\\b(OPTIMIZE|VACUUM|RESTORE|ANALYZE|REORG|CLONE|UNDROP)\\b"
              + "|\\b(COPY\\s+INTO|LOAD\\s+DATA|GENERATE\\s|CONVERT\\s+TO|REPAIR\\s+TABLE|RECOVER\\s+PARTITIONS|DROP\\s+FEATURE)"
              // a table's version as in t@v3
              + "|@(v\\d|\\d{17})",
          Pattern.CASE_INSENSITIVE);

  /** The name of a system table, which Spark's grammar has in backticks only; without the group what is in these. */
  private static final Pattern SYSTEM_TABLE = Pattern.compile("`[^`]*`|(?<![\\w$])(\\w+\\$\\w+)(?![\\w$])");

  private static final String SETTING = "spark.sql.catalog.";

  private final SparkSession session;
  private final ParserInterface spark;

  StatementParser(SparkSession session, ParserInterface spark) {
    this.session = session;
    this.spark = spark;
  }

  @Override
  public LogicalPlan parsePlan(String text) throws ParseException {
    return OptionsOfQueries.checked(spark.parsePlan(rewritten(text)));
  }

  @Override
  public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) throws ParseException {
    // Delta's parser, to which this one passes statements on, forgets the parameters
    return OptionsOfQueries.checked(spark.parsePlan(withValues(text, parameters)));
  }

  /**
   * Returns a statement with values in the places of its parameters, rewritten. They are put there first, since what is
   * rewritten keeps texts, such as the query of a stream; but Spark finds the places by its grammar.
   */
  private String withValues(String text, ParameterContext parameters) {
    String given;
    try {
      given = ParameterHandler.substituteParameters(text, parameters)._1();
    } catch (Exception error) {
      if (error instanceof ParseException) { // which no method declares
        return ParameterHandler.substituteParameters(rewritten(text), parameters)._1();
      }
      throw Refusals.thrown(error);
    }
    return rewritten(given);
  }

  private String rewritten(String text) {
    if (!MAYBE.matcher(text).find()) {
      return text;
    }
    ObjectNode request = PythonSide.request("rewrite").put("statement", text);
    ArrayNode ours = request.putArray("catalogs");
    ArrayNode others = request.putArray("others").add(CatalogManager.SESSION_CATALOG_NAME());
    for (var setting : CollectionConverters.asJava(session.conf().getAll()).entrySet()) {
      if (setting.getKey().startsWith(SETTING)) {
        boolean isOurs = setting.getValue().equals(TablestoreCatalog.class.getName());
        String name = setting.getKey().substring(SETTING.length());
        if (isOurs || !name.contains(".")) { // else it is an option of a catalog
          (isOurs ? ours : others).add(name);
        }
      }
    }
    if (ours.isEmpty()) {
      return text;
    }
    CatalogManager current = session.sessionState().catalogManager();
    request.put("catalog", current.currentCatalog().name());
    request.put("database", String.join(".", current.currentNamespace()));
    SessionCatalog views = session.sessionState().catalog();
    others.add(views.globalTempDatabase());
    ArrayNode temporary = request.putArray("views");
    CollectionConverters.asJava(views.listLocalTempViews("*")).forEach(view -> temporary.add(view.table()));
    return PythonSide.ask(request).asText();
  }

  @Override
  public Expression parseExpression(String text) throws ParseException {
    return spark.parseExpression(text);
  }

  @Override
  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return spark.parseTableIdentifier(text);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return spark.parseFunctionIdentifier(text);
  }

  @Override
  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    // system tables are of readStream.table(…)
    return SavedRows.parsed(DeltaTables.parsed(session, spark.parseMultipartIdentifier(withSystemTables(text))));
  }

  private static String withSystemTables(String name) {
    return SYSTEM_TABLE
        .matcher(name)
        .replaceAll(
            found -> Matcher.quoteReplacement(found.group(1) == null ? found.group() : "`" + found.group() + "`"));
  }

  @Override
  public LogicalPlan parseQuery(String text) throws ParseException {
    return spark.parseQuery(text);
  }

  @Override
  public StructType parseRoutineParam(String text) throws ParseException {
    return spark.parseRoutineParam(text);
  }

  @Override
  public StructType parseTableSchema(String text) throws ParseException {
    return spark.parseTableSchema(text);
  }

  @Override
  public DataType parseDataType(String text) throws ParseException {
    return spark.parseDataType(text);
  }
}
