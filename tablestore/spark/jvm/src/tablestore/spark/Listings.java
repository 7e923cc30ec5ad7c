package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowTables;
import org.apache.spark.sql.catalyst.plans.logical.ShowTablesExtended;
import org.apache.spark.sql.catalyst.plans.logical.ShowViews;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lists tables and views of a database of ours, and temporary views, as Spark does for its own catalog: for {@code SHOW
 * TABLES}, {@code SHOW VIEWS}, {@code SHOW TABLE EXTENDED} and {@code spark.catalog.listTables}.
 *
 * <p>For other catalogs Spark leaves out temporary views or those of the catalog. The plan stays Spark's, since {@code
 * listTables} looks into it.
 */
final class Listings extends SparkStrategy {
  private final SparkSession session;

  Listings(SparkSession session) {
    this.session = session;
  }

  @Override
  public Seq<SparkPlan> apply(LogicalPlan plan) {
    if (plan instanceof ShowTables show) {
      return listed(show.output(), show.namespace(), textOf(show.pattern()), false, false);
    }
    if (plan instanceof ShowViews show) {
      return listed(show.output(), show.namespace(), textOf(show.pattern()), true, false);
    }
    if (plan instanceof ShowTablesExtended show) {
      return listed(show.output(), show.namespace(), show.pattern(), false, true);
    }
    return Attributes.seq(List.of());
  }

  private static String textOf(Option<String> pattern) {
    return pattern.isDefined() ? pattern.get() : "*";
  }

  private Seq<SparkPlan> listed(
      Seq<Attribute> output,
      LogicalPlan namespace,
      String pattern,
      boolean onlyViews,
      boolean described) {
    if (!(namespace instanceof ResolvedNamespace named) || !(named.catalog() instanceof TablestoreCatalog catalog)) {
      return Attributes.seq(List.of());
    }
    String[] database = CollectionConverters.asJava(named.namespace()).toArray(new String[0]);
    SessionCatalog views = session.sessionState().catalog();
    boolean isOfViews = database.length == 1 && views.isGlobalTempViewDB(database[0]);
    List<InternalRow> rows = new ArrayList<>();
    if (!isOfViews || catalog.namespaceExists(database)) {
      for (JsonNode found : catalog.relations(database, pattern, onlyViews, described)) {
        rows.add(row(database[0], found.get(0).asText(), false, described ? found.get(1).asText() : null));
      }
    }
    // those of all sessions are in the one database, those of the session in each
    for (TableIdentifier view :
        CollectionConverters.asJava(
            isOfViews ? views.listTables(database[0], pattern) : views.listLocalTempViews(pattern))) {
      String text = described ? views.getTempViewOrPermanentTableMetadata(view).simpleString() + "\n" : null;
      rows.add(row(view.database().isDefined() ? view.database().get() : "", view.table(), true, text));
    }
    return Attributes.seq(List.of(new LocalTableScanExec(output, Attributes.seq(rows), Option.empty())));
  }

  private static InternalRow row(String database, String name, boolean isTemporary, String description) {
    List<Object> values =
        new ArrayList<>(List.of(UTF8String.fromString(database), UTF8String.fromString(name), isTemporary));
    if (description != null) {
      values.add(UTF8String.fromString(description));
    }
    return new GenericInternalRow(values.toArray());
  }
}
