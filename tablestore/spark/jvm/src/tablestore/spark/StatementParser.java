package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
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
              + "|\\bDESC(RIBE)?\\s+(DETAIL|HISTORY)\\b|\\bSHOW\\s+TABLE\\s+EXTENDED\\b",
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
    String whole = ParameterHandler.substituteParameters(rewritten(text), parameters)._1();
    return OptionsOfQueries.checked(spark.parsePlan(whole));
  }

  private String rewritten(String text) {
    if (!MAYBE.matcher(text).find()) {
      return text;
    }
    ObjectNode request = PythonSide.request("rewrite").put("statement", text);
    ArrayNode ours = request.putArray("catalogs");
    for (var setting : CollectionConverters.asJava(session.conf().getAll()).entrySet()) {
      if (setting.getKey().startsWith(SETTING) && setting.getValue().equals(TablestoreCatalog.class.getName())) {
        ours.add(setting.getKey().substring(SETTING.length()));
      }
    }
    if (ours.isEmpty()) {
      return text;
    }
    CatalogManager current = session.sessionState().catalogManager();
    request.put("catalog", current.currentCatalog().name());
    request.put("database", String.join(".", current.currentNamespace()));
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
    return SavedRows.parsed(spark.parseMultipartIdentifier(withSystemTables(text)));
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
