package tablestore.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTableAsSelectPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Replaces placeholders in a streaming query, at its start, by what really reads and writes.
 *
 * <p>This is not done before, since until then the query may still ask for the column {@code _kind}, without which it
 * can only have inserts.
 */
final class Streams extends Rule<LogicalPlan> {
  private final SparkSession session;

  Streams(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof WriteToStream query)) {
      refuseWithoutCheckpoint(plan);
      return plan;
    }
    Table sink = query.sink() instanceof TablestoreTable table ? new StreamSink(table, query.outputMode()) : query.sink();
    LogicalPlan rows = read(query.inputQuery(), named(query.inputQuery()));
    if (sink == query.sink() && rows == query.inputQuery()) {
      return plan;
    }
    return new WriteToStream(
        query.name(),
        query.sinkName(),
        query.resolvedCheckpointLocation(),
        sink,
        query.outputMode(),
        query.deleteCheckpointOnStop(),
        rows,
        query.catalogAndIdent(),
        query.catalogTable());
  }

  /** Refuses to insert rows of a stream by a statement that starts none. */
  private static void refuseWithoutCheckpoint(LogicalPlan plan) {
    if (plan instanceof V2CreateTableAsSelectPlan create) {
      refuseToCreate(create);
    }
    if (plan instanceof CreateView create
        && create.query().isStreaming()
        && !(create.replace() || create.allowExisting())
        && create.child() instanceof ResolvedIdentifier named
        && named.catalog() instanceof TablestoreCatalog) {
      throw Refusals.plain(
          "stream-view",
          "Spark runs CREATE VIEW of a stream twice, and the second time there is the view: write CREATE OR REPLACE VIEW "
              + named.identifier() + " AS SELECT … FROM STREAM …");
    }
    LogicalPlan target = null;
    LogicalPlan rows = null;
    if (plan instanceof InsertIntoStatement insert) {
      target = insert.table();
      rows = insert.query();
    } else if (plan instanceof V2WriteCommand write) {
      target = (LogicalPlan) write.table();
      rows = write.query();
    }
    // a stream of the target itself makes Spark take that for a stream, too
    Object table =
        target instanceof DataSourceV2Relation relation
            ? relation.table()
            : target instanceof StreamingRelationV2 stream ? stream.table() : null;
    if (table instanceof TablestoreTable ours && rows.isStreaming()) {
      throw Refusals.plain(
          "no-checkpoint",
          "rows FROM STREAM are written by a stream, which needs a folder for its progress: write INSERT INTO "
              + ours.name() + " WITH ('checkpoint' = 'folder') SELECT …");
    }
  }

  /**
   * Refuses to create a table with rows of a stream. This is done before Spark begins the statement; its own commands
   * to insert rows come later.
   */
  private static void refuseToCreate(V2CreateTableAsSelectPlan create) {
    if (create.query().isStreaming()
        && create.name() instanceof ResolvedIdentifier named
        && named.catalog() instanceof TablestoreCatalog) {
      throw Refusals.plain(
          "no-checkpoint",
          "rows FROM STREAM are written by a stream, into a table that is there: create " + named.identifier()
              + " with its columns, and then write INSERT INTO " + named.identifier()
              + " WITH ('checkpoint' = 'folder') SELECT … FROM STREAM …");
    }
  }

  private LogicalPlan read(LogicalPlan plan, Set<Object> named) {
    if (plan instanceof StreamingRelationV2 relation && relation.table() instanceof TablestoreTable table) {
      Map<String, String> options = relation.extraOptions().asCaseSensitiveMap();
      // if a query names one of the hidden columns, Spark adds all of them
      List<AttributeReference> wanted = new ArrayList<>(CollectionConverters.asJava(relation.output()));
      wanted.removeIf(column -> column.name().equals(TablestoreTable.KIND) && !named.contains(column.exprId()));
      boolean withKind = wanted.stream().anyMatch(column -> column.name().equals(TablestoreTable.KIND));
      return NativeReads.named(PythonReads.stream(table, options, withKind, session), Attributes.seq(wanted), List.of());
    }
    return (LogicalPlan) plan.mapChildren(child -> read((LogicalPlan) child, named));
  }

  /** Returns the ids of the columns that a query names. */
  private static Set<Object> named(LogicalPlan query) {
    Set<Object> found = new HashSet<>();
    CollectionConverters.asJava(query.output()).forEach(column -> found.add(column.exprId()));
    query.foreachWithSubqueries(
        node -> {
          if (!(node instanceof StreamingRelationV2)) {
            for (Expression expression : CollectionConverters.asJava(((LogicalPlan) node).expressions())) {
              found.addAll(Attributes.ids(expression));
            }
          }
          return null;
        });
    return found;
  }
}
