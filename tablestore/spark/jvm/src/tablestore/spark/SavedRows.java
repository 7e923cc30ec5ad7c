package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedTableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes {@code df.write.mode("overwrite").saveAsTable(t)} replace the rows of a table that exists, and not the table.
 *
 * <p>Spark plans it as {@code CREATE OR REPLACE TABLE t AS SELECT}, whose table has only what the statement says. A
 * DataFrame cannot say a primary key there, so the table would lose its key, and later inserts would double rows. The
 * plans are alike, also to that of {@code writeTo(t).using(…).createOrReplace()}; only the caller differs. In Spark
 * Connect that has returned when the plan is analyzed, but before it has loaded the table.
 */
final class SavedRows extends Rule<LogicalPlan> {
  private static final String WRITER = "org.apache.spark.sql.classic.DataFrameWriter";

  /** The table for which {@code saveAsTable} has made the plan that this thread analyzes next. */
  private static final ThreadLocal<Identifier> SAVED = new ThreadLocal<>();

  private final SparkSession session;

  SavedRows(SparkSession session) {
    this.session = session;
  }

  /** Notes that a table was loaded to be written, perhaps by {@code saveAsTable}. */
  static void loaded(Identifier ident) {
    if (Callers.has(WRITER, "saveAsTableCommand")) {
      SAVED.set(ident);
    }
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    Identifier saved = SAVED.get();
    SAVED.remove();
    if (saved == null
        || !(plan instanceof ReplaceTableAsSelect save)
        || !(save.name() instanceof UnresolvedIdentifier named)) {
      return plan;
    }
    OurName name = OurName.of(session, named.nameParts());
    if (name == null || !name.ident().equals(saved) || !(name.load() instanceof TablestoreTable table)) {
      return plan;
    }
    PythonSide.ask(described(save, table));
    DataSourceV2Relation target =
        DataSourceV2Relation.create(
            table,
            Option.apply(name.catalog()),
            Option.apply(name.ident()),
            CaseInsensitiveStringMap.empty(),
            Option.empty());
    return OverwriteByExpression.byName(
        target, save.query(), Literal$.MODULE$.TrueLiteral(), save.writeOptions(), false);
  }

  private static ObjectNode described(ReplaceTableAsSelect save, TablestoreTable table) {
    ObjectNode request = table.request("check_saved_rows");
    ArrayNode columns = request.putArray("columns");
    for (String column : save.query().schema().fieldNames()) {
      columns.add(column);
    }
    ArrayNode partitions = request.putArray("partition_by");
    for (Transform transform : CollectionConverters.asJava(save.partitioning())) {
      partitions.add(TablestoreCatalog.columnOf(transform));
    }
    ObjectNode options = request.putObject("options");
    CollectionConverters.asJava(save.writeOptions()).forEach(options::put);
    ObjectNode properties = request.putObject("properties");
    TableSpecBase spec = save.tableSpec();
    put(properties, TableCatalog.PROP_PROVIDER, spec.provider());
    put(properties, TableCatalog.PROP_COMMENT, spec.comment());
    put(properties, TableCatalog.PROP_LOCATION, spec instanceof UnresolvedTableSpec s ? s.location() : Option.empty());
    request.put("case_sensitive", SQLConf.get().caseSensitiveAnalysis());
    return request.put("default_source", SQLConf.get().defaultDataSourceName());
  }

  private static void put(ObjectNode properties, String name, Option<String> value) {
    if (value.isDefined()) {
      properties.put(name, value.get());
    }
  }
}
