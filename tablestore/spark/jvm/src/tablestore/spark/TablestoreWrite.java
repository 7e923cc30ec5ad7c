package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A write of a DataFrame as one commit, which Python makes. */
final class TablestoreWrite implements SupportsOverwriteV2, V1Write, InsertableRelation {
  /** The option of a write that replaces the partitions which its rows have. */
  static final String DYNAMIC = "tablestore.dynamic-overwrite";

  /** The option of a write whose rows were worked out from a version of the table itself. */
  static final String READ_VERSION = "tablestore.read-version";

  /** The option of a write whose rows may be deletes, of which only the key is there. */
  static final String DELETES = "tablestore.deletes";

  /** The option of a write whose rows were worked out from rows of other keys, too. */
  static final String READS_WHOLE = "tablestore.reads-whole";

  /** The option of a write that is refused if two of its rows put one key. */
  static final String EACH_KEY_ONCE = "tablestore.each-key-once";

  /** The option of a write that is refused if it inserts a key that the table has, and that it does not delete. */
  static final String INSERTS_UNMATCHED = "tablestore.inserts-unmatched";

  /** The option of a write whose rows are changes in the order in which they happened. */
  static final String IN_ORDER = "tablestore.in-order";

  /** The option that says, before the setting of the session, which partitions an overwrite replaces. */
  private static final String PARTITIONS = "partitionoverwritemode";

  /** The option that WITH SCHEMA EVOLUTION becomes: Spark itself adds the columns before it writes. */
  private static final String EVOLVES = "mergeschema";

  /** The beginning of options that Spark adds itself. */
  private static final String OF_SPARK = "__";

  private static final Set<String> OPTIONS =
      Set.of(
          EVOLVES, PARTITIONS, DYNAMIC, READ_VERSION, DELETES, READS_WHOLE, EACH_KEY_ONCE, INSERTS_UNMATCHED, IN_ORDER);

  private final TablestoreTable table;
  private final ObjectNode request;
  private final PartitionOverwriteMode given;

  TablestoreWrite(TablestoreTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.request = table.request("write");
    refuseUnknown(options);
    this.given = modeOf(options);
    if (options.getBoolean(DYNAMIC, false)) {
      if (given == PartitionOverwriteMode.STATIC) {
        throw Refusals.plain(
            "unsupported",
            "the session, or overwritePartitions(), replaces only the partitions that the rows have, and "
                + "partitionOverwriteMode says static: SET spark.sql.sources.partitionOverwriteMode = static, or "
                + "overwrite(lit(True)), replaces the whole table");
      }
      request.put("overwrite", "dynamic");
    }
    request.put("each_key_once", options.getBoolean(EACH_KEY_ONCE, false));
    request.put("inserts_unmatched", options.getBoolean(INSERTS_UNMATCHED, false));
    request.put("in_order", options.getBoolean(IN_ORDER, false));
    if (options.containsKey(READ_VERSION)) {
      request.put("if_version", options.getLong(READ_VERSION, -1));
      request.put("deletes", options.getBoolean(DELETES, false));
      request.put("reads_whole", options.getBoolean(READS_WHOLE, false));
    }
  }

  /** The extent of an overwrite that names no partitions: the whole table, or the partitions that its rows have. */
  enum PartitionOverwriteMode {
    STATIC,
    DYNAMIC
  }

  /** Returns what the option of a write says, or null if it is not there. */
  static PartitionOverwriteMode modeOf(CaseInsensitiveStringMap options) {
    String mode = options.get(PARTITIONS);
    if (mode == null) {
      return null;
    }
    try {
      return PartitionOverwriteMode.valueOf(mode.toUpperCase(Locale.ROOT));
    } catch (IllegalArgumentException e) {
      throw Refusals.plain("bad-option-value", "partitionOverwriteMode is static or dynamic, and not " + mode);
    }
  }

  /** Returns the names of the options without those that Spark adds itself. */
  static Stream<String> given(CaseInsensitiveStringMap options) {
    return options.keySet().stream().filter(name -> !name.startsWith(OF_SPARK));
  }

  /** Returns the names of the options that a write of rows does not have. */
  static Stream<String> unknown(CaseInsensitiveStringMap options) {
    return given(options).filter(name -> !OPTIONS.contains(name));
  }

  /** Refuses options that a write of rows does not have. */
  static void refuseUnknown(CaseInsensitiveStringMap options) {
    for (String name : unknown(options).toList()) {
      throw Refusals.plain(
          "unknown-option",
          "a write of rows has no option " + name + "; it has mergeSchema and partitionOverwriteMode. "
              + OptionsOfDelta.ofWrite(name, "INSERT INTO of a stream has checkpoint, trigger, output_mode and name"));
    }
  }

  @Override
  public WriteBuilder truncate() {
    request.put("overwrite", given == PartitionOverwriteMode.DYNAMIC ? "dynamic" : "all");
    return this;
  }

  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    ArrayNode partition = request.put("overwrite", "partition").putArray("partition");
    for (Predicate predicate : predicates) {
      if (predicate.name().equals("ALWAYS_TRUE")) {
        return truncate();
      }
      addEquality(predicate, partition.addObject());
    }
    if (given == PartitionOverwriteMode.DYNAMIC) {
      throw Refusals.plain(
          "bad-option-value",
          "partitionOverwriteMode=dynamic replaces the partitions that the rows have, and the condition names others: "
              + "leave one of the two out");
    }
    return this;
  }

  @Override
  public Write build() {
    return this;
  }

  @Override
  public InsertableRelation toInsertableRelation() {
    return this;
  }

  @Override
  public void insert(Dataset<Row> rows, boolean overwrite) {
    SparkSession session = (SparkSession) rows.sparkSession();
    JsonNode answer = PythonSide.give(request, session, rows);
    if (answer.has("changed")) {
      try (Turns.Turn turn = Turns.of(table.location())) {
        giveAgain(rows, session, answer.get("changed"));
      }
    }
    table.renewCaches(session);
  }

  /** Writes rows that have changed since they were read: it reads them again, and so on a bounded number of times. */
  private void giveAgain(Dataset<Row> rows, SparkSession session, JsonNode changed) {
    Dataset<Row> current = rows;
    for (int left = table.replans(); changed != null; left--) {
      current = left > 0 ? reread(current, session) : null;
      if (current == null) {
        throw Refusals.of(changed);
      }
      changed = PythonSide.give(request, session, current).get("changed");
    }
  }

  /** Plans the rows again over the newest version; returns null if that cannot be done. */
  private Dataset<Row> reread(Dataset<Row> rows, SparkSession session) {
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset<Row>) rows).queryExecution().analyzed();
    JsonNode newest = PythonSide.ask(table.request("load_table"));
    if (!table.canReadAt(newest)) {
      return null;
    }
    long version = newest.get("version").asLong();
    Rereads.Pinned again = new Rereads(session, table, request.get("if_version").asLong(), version).pinned(plan);
    if (again.count() == 0 || !again.overlays().isEmpty()) {
      return null;
    }
    request.put("if_version", version);
    return org.apache.spark.sql.classic.Dataset.ofRows(session, again.plan());
  }

  private static void addEquality(Predicate predicate, ObjectNode node) {
    Expression[] sides = predicate.children();
    boolean equality = predicate.name().equals("=") || predicate.name().equals("<=>");
    if (equality && sides[0] instanceof NamedReference column && sides[1] instanceof Literal<?> value) {
      node.put("column", column.fieldNames()[0]);
      node.put("value", Values.text(value.value(), value.dataType()));
    } else {
      throw Refusals.plain("unsupported", "a write replaces whole partitions, not rows where " + predicate.describe());
    }
  }
}
