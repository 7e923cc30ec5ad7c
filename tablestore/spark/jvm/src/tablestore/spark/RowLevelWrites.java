package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.RaiseError;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.InsertOnlyMerge;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceData;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.util.RowDeltaUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.RowLevelOperation.Command;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Turns Spark's plans of UPDATE, DELETE, MERGE and dynamic overwrites into upserts.
 *
 * <p>Spark's {@code WriteDelta} has a row for each change, with a number that says which, the new values, and the key of
 * the row before. Tablestore takes rows with a column {@code _kind} instead.
 */
final class RowLevelWrites extends Rule<LogicalPlan> {
  private final SparkSession session;

  RowLevelWrites(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof WriteDelta write
        && write.originalTable() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table) {
      LogicalPlan merged = WholeRows.of(write, table);
      return merged == null ? upsert(new Changes(write, table), relation, table) : merge(merged, relation, table);
    }
    if (plan instanceof ReplaceData write
        && write.originalTable() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table) {
      return replacement(write, relation, table);
    }
    if (plan instanceof OverwritePartitionsDynamic write
        && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table
        && write.resolved()) {
      refuseOptionsOfRead(relation, table);
      Map<String, String> options = optionsOf(relation, CollectionConverters.asJava(write.writeOptions()));
      options.put(TablestoreWrite.DYNAMIC, "true");
      return append(relation, pinned(write.query(), table, options), options);
    }
    if (plan instanceof AppendData write
        && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table
        && write.resolved()
        && !write.writeOptions().contains(TablestoreWrite.READ_VERSION)) {
      return inserted(write, relation, table, CollectionConverters.asJava(write.writeOptions()));
    }
    if (plan instanceof InsertOnlyMerge write
        && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table
        && write.resolved()) {
      boolean mayBeStored = !table.primaryKey().isEmpty() && InsertedKeys.mayBeStored(write, table);
      return inserted(write, relation, table, ofMerge(mayBeStored));
    }
    if (plan instanceof OverwriteByExpression write
        && write.table() instanceof DataSourceV2Relation relation
        && relation.table() instanceof TablestoreTable table
        && write.resolved()
        && !write.writeOptions().contains(TablestoreWrite.READ_VERSION)) {
      return overwrite(write, relation, table);
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  /** Pins what an insertion reads of its own table, and applies the changes of a topic; others stay as they are. */
  private LogicalPlan inserted(
      V2WriteCommand write, DataSourceV2Relation relation, TablestoreTable table, Map<String, String> given) {
    Map<String, String> options = optionsOf(relation, given);
    LogicalPlan changes = ChangesOfTopics.written(write.query(), table);
    if (changes != null) {
      options.put(TablestoreWrite.IN_ORDER, "true");
      return append(withKinds(relation, table), changes, options);
    }
    LogicalPlan query = pinned(write.query(), table, options);
    if (!options.containsKey(TablestoreWrite.READ_VERSION)) {
      return (LogicalPlan) write;
    }
    refuseOptionsOfRead(relation, table);
    return append(relation, query, options);
  }

  /** Returns the options of a write: Spark has those of an INSERT at the table, and others at the write. */
  private static Map<String, String> optionsOf(DataSourceV2Relation target, Map<String, String> given) {
    Map<String, String> options = new HashMap<>(target.options());
    options.putAll(given);
    return options;
  }

  /** Returns a table without options, for a write that has all of them: both would have to be the same. */
  private static DataSourceV2Relation withoutOptions(DataSourceV2Relation target) {
    return target.copy(
        target.table(),
        target.output(),
        target.catalog(),
        target.identifier(),
        CaseInsensitiveStringMap.empty(),
        target.timeTravelSpec());
  }

  /** Refuses options of a read of the table that a statement writes: Spark takes them for those of the write, too. */
  private static void refuseOptionsOfRead(DataSourceV2Relation target, TablestoreTable table) {
    TablestoreWrite.unknown(target.options())
        .findFirst()
        .ifPresent(
            name -> {
              throw optionOfRead(table, name);
            });
  }

  /** Returns the refusal of an option of a read of the table that the statement writes. */
  static RuntimeException optionOfRead(TablestoreTable table, String option) {
    return Refusals.plain(
        "unknown-option",
        "a statement that writes " + table.name() + " reads its newest version, so FROM " + table.name()
            + " has no option " + option + " in it: leave it out");
  }

  private LogicalPlan upsert(Changes changes, DataSourceV2Relation relation, TablestoreTable table) {
    long version = table.versionNumber();
    Rereads.Pinned rows = pinned(changes.rows(), table);
    Map<String, String> options = new HashMap<>();
    options.put(TablestoreWrite.READ_VERSION, Long.toString(version));
    options.put(TablestoreWrite.DELETES, Boolean.toString(changes.mayDelete()));
    options.put(TablestoreWrite.READS_WHOLE, Boolean.toString(rows.count() > 1));
    if (changes.command() == Command.MERGE) {
      options.putAll(ofMerge(InsertedKeys.mayBeStored(changes.write, table)));
    }
    return append(withKinds(relation, table), rows.plan(), options);
  }

  /** Returns the options of the rows of a MERGE, which writes each key once. */
  private static Map<String, String> ofMerge(boolean mayBeStored) {
    return Map.of(
        TablestoreWrite.EACH_KEY_ONCE, "true", TablestoreWrite.INSERTS_UNMATCHED, Boolean.toString(mayBeStored));
  }

  private static DataSourceV2Relation withKinds(DataSourceV2Relation relation, TablestoreTable table) {
    return DataSourceV2Relation.create(
        table.withKinds(),
        relation.catalog(),
        relation.identifier(),
        new CaseInsensitiveStringMap(Map.of()),
        Option.empty());
  }

  /** Writes rows that replace the stored rows of their keys, whatever these are. */
  private LogicalPlan merge(LogicalPlan source, DataSourceV2Relation relation, TablestoreTable table) {
    Map<String, String> options = new HashMap<>(Map.of(TablestoreWrite.EACH_KEY_ONCE, "true"));
    return append(relation, pinned(source, table, options), options);
  }

  /** Writes all rows that a table without a key shall have, in place of its current ones. */
  private LogicalPlan replacement(ReplaceData write, DataSourceV2Relation relation, TablestoreTable table) {
    ProjectingInternalRow columns = write.projections().rowProjection();
    List<Attribute> output = CollectionConverters.asJava(write.query().output());
    List<NamedExpression> row = new ArrayList<>();
    for (StructField field : table.structType().fields()) {
      row.add(Attributes.as(at(output, columns, field.name()), field.name()));
    }
    Map<String, String> options = new HashMap<>();
    LogicalPlan rows = pinned(Attributes.project(row, write.query()), table, options);
    return new OverwriteByExpression(
        relation, Literal$.MODULE$.TrueLiteral(), rows, scalaMap(options), true, false, Option.empty(), Option.empty());
  }

  private LogicalPlan overwrite(OverwriteByExpression write, DataSourceV2Relation relation, TablestoreTable table) {
    Map<String, String> options = optionsOf(relation, CollectionConverters.asJava(write.writeOptions()));
    LogicalPlan query = pinned(write.query(), table, options);
    if (!options.containsKey(TablestoreWrite.READ_VERSION)) {
      return write;
    }
    refuseOptionsOfRead(relation, table);
    return new OverwriteByExpression(
        withoutOptions(relation),
        write.deleteExpr(),
        query,
        scalaMap(options),
        write.isByName(),
        write.withSchemaEvolution(),
        write.write(),
        write.analyzedQuery());
  }

  /**
   * Pins the version that a write reads of its own target, so that it replaces no row that it has not read. Then the
   * options have that version. The query may stay as it is: overlays and versions that are pinned already do.
   */
  private LogicalPlan pinned(LogicalPlan query, TablestoreTable table, Map<String, String> options) {
    Rereads.Pinned rows = pinned(query, table);
    if (rows.count() == 0) {
      return query;
    }
    options.put(TablestoreWrite.READ_VERSION, Long.toString(table.versionNumber()));
    options.put(TablestoreWrite.READS_WHOLE, "true");
    return rows.plan();
  }

  private Rereads.Pinned pinned(LogicalPlan query, TablestoreTable table) {
    if (table.location().isEmpty()) {
      return new Rereads.Pinned(query, 0, Set.of()); // a Kafka topic: messages stay as they are
    }
    long version = table.versionNumber();
    Rereads.Pinned rows = new Rereads(session, table, version, version).pinned(query);
    if (!rows.overlays().stream().allMatch(path -> path.endsWith(table.overlay()))) {
      throw Refusals.plain(
          "read-changed", "the DataFrame was read at another version of " + table.name() + ": read it again, and write it");
    }
    return rows;
  }

  private static AppendData append(DataSourceV2Relation target, LogicalPlan query, Map<String, String> options) {
    return AppendData.byName(withoutOptions(target), query, scalaMap(options), false);
  }

  private static scala.collection.immutable.Map<String, String> scalaMap(Map<String, String> options) {
    return scala.collection.immutable.Map.from(CollectionConverters.asScala(options));
  }

  /** Returns which of a row's expressions a projection uses for a column. */
  static <T extends Expression> T at(List<T> row, ProjectingInternalRow projection, String name) {
    return row.get((Integer) projection.colOrdinals().apply(projection.schema().fieldIndex(name)));
  }

  /** The rows of one statement. */
  private static final class Changes {
    private final WriteDelta write;
    private final TablestoreTable table;
    private final List<Attribute> output;
    private final Attribute operation;

    Changes(WriteDelta write, TablestoreTable table) {
      this.write = write;
      this.table = table;
      this.output = CollectionConverters.asJava(write.query().output());
      this.operation = find(RowDeltaUtils.OPERATION_COLUMN());
    }

    LogicalPlan rows() {
      List<NamedExpression> columns = new ArrayList<>();
      for (StructField field : table.structType().fields()) {
        columns.add(Attributes.as(valueOf(field), field.name()));
      }
      columns.add(Attributes.as(kind(), TablestoreTable.KIND));
      return Attributes.project(columns, write.query());
    }

    Command command() {
      return write.operation().command();
    }

    boolean mayDelete() {
      return command() != Command.UPDATE;
    }

    private Expression valueOf(StructField field) {
      Expression after = after(field.name());
      if (!table.primaryKey().contains(field.name())) {
        return after == null ? new Literal(null, field.dataType()) : after;
      }
      Expression before = at(write.projections().rowIdProjection(), field.name());
      if (after == null) {
        return before;
      }
      Expression moved = new And(is(RowDeltaUtils.UPDATE_OPERATION()), new Not(new EqualNullSafe(before, after)));
      return new CaseWhen(
          Attributes.seq(
              List.of(
                  new Tuple2<>(is(RowDeltaUtils.DELETE_OPERATION()), before), new Tuple2<>(moved, refusal(field)))),
          new Some<>(after));
    }

    private Expression refusal(StructField field) {
      String message =
          "[tablestore: key-change] the statement changes " + field.name() + ", a column of the primary key of "
              + table.name() + ": delete the row, and insert another one";
      Expression raised = new RaiseError(literal(message));
      return new Cast(raised, field.dataType(), Option.empty(), EvalMode.LEGACY());
    }

    private Expression kind() {
      return new CaseWhen(
          Attributes.seq(
              List.of(
                  new Tuple2<>(is(RowDeltaUtils.DELETE_OPERATION()), literal("-D")),
                  new Tuple2<>(is(RowDeltaUtils.INSERT_OPERATION()), literal("+I")))),
          new Some<>(literal("+U")));
    }

    private Expression after(String name) {
      Option<ProjectingInternalRow> rows = write.projections().rowProjection();
      return rows.isEmpty() ? null : at(rows.get(), name);
    }

    private Expression at(ProjectingInternalRow projection, String name) {
      return RowLevelWrites.at(output, projection, name);
    }

    private Expression is(int operationNumber) {
      return new EqualTo(operation, literal(operationNumber));
    }

    private Attribute find(String name) {
      return output.stream().filter(a -> a.name().equals(name)).findFirst().orElseThrow();
    }

    private static Expression literal(Object value) {
      return Literal$.MODULE$.apply(value);
    }
  }
}
