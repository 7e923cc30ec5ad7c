package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchPartitionException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table at the version that it had when a statement named it.
 *
 * <p>Where a statement reads it, {@link NativeReads} puts Delta's own relation in its place, so it has no scan. Where
 * a statement writes it, the rows go to Python as a DataFrame.
 */
class TablestoreTable
    implements SupportsRead,
        SupportsWrite,
        SupportsRowLevelOperations,
        SupportsAtomicPartitionManagement,
        SupportsMetadataColumns,
        TruncatableTable {
  /** The column with a row's kind: {@code +I}, {@code -U}, {@code +U} or {@code -D}. */
  static final String KIND = "_kind";

  final Place place;
  final String database;

  /** The name by which Python finds the table. */
  final String table;

  /** The description that Python gives of it. */
  final JsonNode description;

  private final StructType schema;

  TablestoreTable(Place place, String database, String table, JsonNode description, StructType schema) {
    this.place = place;
    this.database = database;
    this.table = table;
    this.description = description;
    this.schema = schema;
  }

  /**
   * Makes a table of what Python says of it.
   *
   * @param description {@code schema}; {@code hidden}, the columns that are read only by their names; {@code
   *     partition_by}, {@code primary_key}, {@code properties}; {@code table_id}, {@code location}, {@code version};
   *     {@code refused}, the row-level commands that it cannot do; {@code pinned}, whether the statement named this
   *     version; {@code creation}, the statement that creates a materialized view; {@code watermark}, if it has one,
   *     with {@code column} and {@code delay_ms}; {@code changes}, of a topic whose messages are changes; {@code
   *     takes_kinds}; and {@code plain}, whether Delta's relation of the location has all rows
   */
  static TablestoreTable of(Place place, String database, String table, JsonNode description) {
    return new TablestoreTable(place, database, table, description, schemaOf(description));
  }

  static StructType schemaOf(JsonNode description) {
    return (StructType) DataType.fromJson(description.get("schema").asText());
  }

  private TablestoreTable withColumns(StructType columns) {
    return new TablestoreTable(place, database, table, description, columns);
  }

  ObjectNode request(String operation) {
    return place.request(operation, database, table).put("table_id", id());
  }

  String location() {
    return description.get("location").asText();
  }

  long versionNumber() {
    return description.get("version").asLong();
  }

  boolean isPinned() {
    return description.get("pinned").asBoolean();
  }

  /** Returns whether the statement has named this version. */
  boolean isNamedVersion() {
    return description.path("named").asBoolean();
  }

  boolean isPlain() {
    return description.get("plain").asBoolean();
  }

  /** Returns the column by which a stream of the table has a watermark. */
  Optional<String> watermarkColumn() {
    return Optional.of(description.path("watermark").path("column").asText()).filter(column -> !column.isEmpty());
  }

  long watermarkDelayMs() {
    return description.path("watermark").path("delay_ms").asLong();
  }

  List<String> primaryKey() {
    return names("primary_key");
  }

  /** Returns the columns of the key. */
  NamedReference[] keyColumns() {
    return references(primaryKey());
  }

  /** Returns columns as Spark refers to them. */
  static NamedReference[] references(List<String> columns) {
    return columns.stream().map(TablestoreTable::quoted).map(Expressions::column).toArray(NamedReference[]::new);
  }

  /** Returns a name as Spark parses it, which takes a dot for the way to a field. */
  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** Returns where Delta's relation of this version is, if it has pending runs. */
  String overlay() {
    return description.get("overlay").asText();
  }

  /** Returns the statement that creates it again if it is a materialized view; empty for other tables. */
  String creation() {
    return description.path("creation").asText("");
  }

  /** Returns how many times a statement is planned again because the rows that it read have changed. */
  int replans() {
    return description.get("replans").asInt();
  }

  /** Returns whether a row that is written replaces the stored one of its key, whatever that is. */
  boolean replacesRows() {
    return description.path("replaces_rows").asBoolean();
  }

  /** Returns whether a row that is written as a delete removes the stored one of its key. */
  boolean deletesByKey() {
    return description.path("deletes_by_key").asBoolean();
  }

  /** Returns this table as the target of rows with a kind, of which a delete may have only the key. */
  TablestoreTable withKinds() {
    StructType found = new StructType();
    for (StructField field : schema.fields()) {
      found = found.add(field.name(), field.dataType(), true);
    }
    return withColumns(found.add(KIND, DataTypes.StringType, true));
  }

  /** Returns whether a plan for this version is one for another version, too. */
  boolean canReadAt(JsonNode other) {
    return other.get("plain").asBoolean()
        && other.get("schema").equals(description.get("schema"))
        && other.get("table_id").equals(description.get("table_id"));
  }

  /** Reads again what {@code CACHE TABLE} has kept of the table. */
  void renewCaches(org.apache.spark.sql.SparkSession session) {
    if (location().isEmpty()) {
      return; // a Kafka topic
    }
    SparkSession classic = (SparkSession) session;
    classic.sharedState().cacheManager().recacheByPath(classic, location());
  }

  StructType structType() {
    return schema;
  }

  @Override
  public String name() {
    return place.catalog() + "." + database + "." + table;
  }

  @Override
  public String id() {
    return description.get("table_id").asText();
  }

  @Override
  public String version() {
    return description.get("version").asText();
  }

  @Override
  public Column[] columns() {
    return CatalogV2Util.structTypeToV2Columns(schema, false);
  }

  @Override
  public Transform[] partitioning() {
    return names("partition_by").stream().map(TablestoreTable::quoted).map(Expressions::identity).toArray(Transform[]::new);
  }

  @Override
  public Map<String, String> properties() {
    return TablestoreCatalog.texts(description.get("properties"));
  }

  @Override
  public Constraint[] constraints() {
    List<String> key = primaryKey();
    if (key.isEmpty()) {
      return new Constraint[0];
    }
    // no two rows of a read have one key, whatever the statement said; ENFORCED would mean that an INSERT fails
    return new Constraint[] {Constraint.primaryKey(table + "_pk", keyColumns()).enforced(false).rely(true).build()};
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.V1_BATCH_WRITE,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE,
        TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC,
        TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    List<MetadataColumn> found = new ArrayList<>();
    description.get("hidden").forEach(column -> found.add(new Hidden(column)));
    return found.toArray(new MetadataColumn[0]);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return NoScan.of(schema); // DESCRIBE asks for one
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new TablestoreWrite(this, info.options());
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    JsonNode refusal = description.get("refused").get(info.command().name());
    if (refusal != null) {
      String message = info.command() + " of " + name() + " is not possible: " + refusal.get("message").asText();
      throw Refusals.plain(refusal.get("code").asText(), message);
    }
    return () ->
        primaryKey().isEmpty()
            ? new WholeTableOperation(this, info.command())
            : new KeyedOperation(this, info.command());
  }

  @Override
  public boolean truncateTable() {
    PythonSide.ask(request("truncate"));
    renewCaches(org.apache.spark.sql.SparkSession.active());
    return true;
  }

  @Override
  public StructType partitionSchema() {
    StructType found = new StructType();
    for (String name : names("partition_by")) {
      found = found.add(schema.fields()[schema.fieldIndex(name)]);
    }
    return found;
  }

  @Override
  public InternalRow[] listPartitionIdentifiers(String[] columns, InternalRow wanted) {
    StructType partitions = partitionSchema();
    List<InternalRow> found = new ArrayList<>();
    for (JsonNode texts : PythonSide.ask(request("list_partitions"))) {
      InternalRow partition = Values.row(texts, partitions);
      if (isIn(partition, columns, wanted)) {
        found.add(partition);
      }
    }
    return found.toArray(new InternalRow[0]);
  }

  private boolean isIn(InternalRow partition, String[] columns, InternalRow wanted) {
    StructType partitions = partitionSchema();
    for (int i = 0; i < columns.length; i++) {
      int column = partitions.fieldIndex(columns[i]);
      DataType type = partitions.fields()[column].dataType();
      if (!Objects.equals(partition.get(column, type), wanted.get(i, type))) {
        return false;
      }
    }
    return true;
  }

  @Override
  public boolean dropPartitions(InternalRow[] partitions) {
    ObjectNode request = request("drop_partitions");
    ArrayNode listed = request.putArray("partitions");
    StructField[] fields = partitionSchema().fields();
    for (InternalRow partition : partitions) {
      ObjectNode values = listed.addObject();
      for (int i = 0; i < fields.length; i++) {
        values.put(fields[i].name(), Values.text(partition.get(i, fields[i].dataType()), fields[i].dataType()));
      }
    }
    PythonSide.ask(request);
    renewCaches(org.apache.spark.sql.SparkSession.active());
    return true;
  }

  @Override
  public boolean truncatePartitions(InternalRow[] partitions) {
    return partitions.length == 0 || dropPartitions(partitions);
  }

  @Override
  public boolean truncatePartition(InternalRow partition) {
    if (!partitionExists(partition)) {
      throw Refusals.thrown(new NoSuchPartitionException(name(), partition, partitionSchema()));
    }
    return dropPartition(partition);
  }

  @Override
  public boolean purgePartition(InternalRow partition) {
    return purgePartitions(new InternalRow[] {partition});
  }

  @Override
  public boolean purgePartitions(InternalRow[] partitions) {
    throw Refusals.plain(
        "purge-partition",
        "files of a dropped partition of " + name() + " stay until the versions that have them expire: leave PURGE out, "
            + "and CALL " + place.catalog() + ".sys.expire_snapshots");
  }

  @Override
  public boolean renamePartition(InternalRow from, InternalRow to) {
    throw Refusals.plain(
        "rename-partition",
        "the name of a partition of " + name() + " is made of values of its rows: INSERT the rows with other values, and "
            + "DROP the PARTITION");
  }

  @Override
  public void createPartitions(InternalRow[] partitions, Map<String, String>[] properties) {
    throw Refusals.plain("add-partition", "a partition of " + name() + " is there as soon as it has rows: INSERT them");
  }

  @Override
  public Map<String, String> loadPartitionMetadata(InternalRow partition) {
    return Map.of();
  }

  @Override
  public void replacePartitionMetadata(InternalRow partition, Map<String, String> properties) {
    throw Refusals.plain("unsupported", "a partition of " + name() + " has no properties of its own");
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TablestoreTable that
        && place.equals(that.place)
        && description.equals(that.description)
        && schema.equals(that.schema);
  }

  @Override
  public int hashCode() {
    return description.hashCode();
  }

  private List<String> names(String field) {
    return names(description, field);
  }

  static List<String> names(JsonNode description, String field) {
    List<String> found = new ArrayList<>();
    description.get(field).forEach(name -> found.add(name.asText()));
    return found;
  }

  /** A column that a statement can read by its name, and cannot write. */
  private record Hidden(JsonNode description) implements MetadataColumn {
    @Override
    public String name() {
      return description.get("name").asText();
    }

    @Override
    public DataType dataType() {
      return DataType.fromDDL(description.get("type").asText());
    }

    @Override
    public String comment() {
      return description.get("comment").isNull() ? null : description.get("comment").asText();
    }
  }

  /** Says which columns a read would have, and reads nothing: {@link NativeReads} replaces what it stands for. */
  record NoScan(StructType readSchema) implements Scan {
    static ScanBuilder of(StructType schema) {
      return () -> new NoScan(schema);
    }
  }
}
