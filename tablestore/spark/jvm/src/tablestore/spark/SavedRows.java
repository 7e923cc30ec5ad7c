package tablestore.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedTableSpec;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import tablestore.spark.TablestoreWrite.PartitionOverwriteMode;

/**
 * Makes {@code df.write.mode("overwrite").saveAsTable(t)} replace the rows of a table that exists, and not the table.
 *
 * <p>Spark plans it as {@code CREATE OR REPLACE TABLE t AS SELECT}, whose table has only what the statement says. A
 * DataFrame cannot say a primary key there, so the table would lose its key, and later inserts would double rows. The
 * plans are alike, also to that of {@code writeTo(t).using(…).createOrReplace()}. But only {@code saveAsTable} loads the
 * table to write it right after it has parsed its name, before any plan is analyzed; its plan has this very name. So does
 * that of Spark Connect.
 */
final class SavedRows extends Rule<LogicalPlan> {
  /** The name that this thread has parsed last. */
  private static final ThreadLocal<Name> LAST = new ThreadLocal<>();

  private final SparkSession session;

  SavedRows(SparkSession session) {
    this.session = session;
  }

  /**
   * A name as it was parsed for one operation: another one has an object of its own, though it be equal.
   *
   * @param loaded the table, if {@code saveAsTable} has loaded it; else null
   */
  private record Name(Seq<String> parts, Identifier loaded) {}

  /** Notes a name that was parsed, and returns it. */
  static Seq<String> parsed(Seq<String> parts) {
    LAST.set(new Name(parts, null));
    return parts;
  }

  /** Loads a table that will be written, perhaps by {@code saveAsTable}. */
  static Table loaded(Identifier ident, Supplier<Table> table) {
    Name name = LAST.get(); // Python may parse others
    Table found = table.get();
    if (name != null) {
      LAST.set(new Name(name.parts, ident));
    }
    return found;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    Name saved = LAST.get();
    LAST.remove(); // analysis loads tables, too
    if (saved == null
        || saved.loaded == null
        || !(plan instanceof ReplaceTableAsSelect save)
        || !(save.name() instanceof UnresolvedIdentifier named)
        || named.nameParts() != saved.parts) {
      return plan;
    }
    OurName name = OurName.of(session, named.nameParts());
    if (name == null || !name.ident().equals(saved.loaded) || !(name.load() instanceof TablestoreTable table)) {
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
    return replacesPartitions(save)
        ? OverwritePartitionsDynamic.byName(target, save.query(), save.writeOptions(), false)
        : OverwriteByExpression.byName(
            target, save.query(), Literal$.MODULE$.TrueLiteral(), save.writeOptions(), false);
  }

  /** Returns whether the option, or else the session, says to replace the partitions that the rows have, as for Delta. */
  private static boolean replacesPartitions(ReplaceTableAsSelect save) {
    PartitionOverwriteMode given =
        TablestoreWrite.modeOf(new CaseInsensitiveStringMap(CollectionConverters.asJava(save.writeOptions())));
    String mode = given == null ? SQLConf.get().partitionOverwriteMode().toString() : given.name();
    return mode.equals(PartitionOverwriteMode.DYNAMIC.name());
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
