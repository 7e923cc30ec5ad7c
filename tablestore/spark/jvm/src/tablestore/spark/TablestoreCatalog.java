package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.Relation;
import org.apache.spark.sql.connector.catalog.RelationCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/** The databases, tables and views of a table store, for {@code spark.sql.catalog.<name>}. Python decides; this asks. */
public final class TablestoreCatalog
    implements RelationCatalog, StagingTableCatalog, SupportsNamespaces, ProcedureCatalog, FunctionCatalog {
  private static final String PROCEDURES = "sys";

  /** The prefix of the options that only a materialized view has. */
  private static final String OF_VIEWS = "view.";

  /** The prefix of a session's default options of tables (FLIP-188). */
  private static final String DEFAULT = "table-storage.";

  static final String CLUSTERED =
      "rows of a table are in partitions and buckets, and not clustered by other columns: leave CLUSTER BY out. "
          + "PARTITIONED BY, and a primary key that begins with a column, store its rows together";

  private Place place;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    Map<String, String> settings = Map.copyOf(options.asCaseSensitiveMap());
    SparkConf started = SparkSession.active().sparkContext().getConf();
    // exactly those: one that is missing may be what names the token of this catalog
    boolean byProgram = settings.equals(settingsOf(started, "spark.sql.catalog." + name + "."));
    place = new Place(name, settings, byProgram);
  }

  private static Map<String, String> settingsOf(SparkConf conf, String prefix) {
    Map<String, String> found = new HashMap<>();
    for (var setting : conf.getAllWithPrefix(prefix)) {
      found.put(setting._1(), setting._2());
    }
    return found;
  }

  @Override
  public String name() {
    return place.catalog();
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    // without the others Spark refuses generated and identity columns and defaults, instead of dropping them silently
    return EnumSet.of(TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
  }

  @Override
  public String[][] listNamespaces() {
    List<String[]> found = new ArrayList<>();
    PythonSide.ask(place.request("list_databases")).forEach(name -> found.add(new String[] {name.asText()}));
    return found.toArray(new String[0][]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) {
    if (namespace.length == 0) {
      return listNamespaces();
    }
    loadNamespaceMetadata(namespace);
    return new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) {
    return texts(PythonSide.ask(place.request("load_database").put("database", one(namespace))));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    ObjectNode request = place.request("create_database").put("database", one(namespace));
    put(request.putObject("properties"), properties);
    PythonSide.ask(request);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw Refusals.plain("unsupported", "a database of Tablestore has no properties: its name is all there is to it");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    ObjectNode request = place.request("drop_database").put("database", one(namespace)).put("cascade", cascade);
    return PythonSide.ask(request).asBoolean();
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    return listed("list_tables", namespace);
  }

  @Override
  public Identifier[] listViews(String[] namespace) {
    return listed("list_views", namespace);
  }

  /** Lists names of tables and views, or of views alone, each with a text about it if it shall be described. */
  JsonNode relations(String[] namespace, String pattern, boolean onlyViews, boolean described) {
    ObjectNode request = place.request("list_relations").put("database", one(namespace)).put("pattern", pattern);
    return PythonSide.ask(request.put("only_views", onlyViews).put("described", described));
  }

  private Identifier[] listed(String operation, String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    JsonNode names = PythonSide.ask(place.request(operation).put("database", one(namespace)));
    names.forEach(name -> found.add(Identifier.of(namespace, name.asText())));
    return found.toArray(new Identifier[0]);
  }

  @Override
  public Relation loadRelation(Identifier ident) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.asked(c -> c.loadTable(ident));
    }
    JsonNode found = PythonSide.ask(request("load_relation", ident));
    return found.has("query")
        ? Views.of(found, place)
        : TablestoreTable.of(place, one(ident.namespace()), ident.name(), found);
  }

  @Override
  public Table loadTable(Identifier ident) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.asked(c -> c.loadTable(ident));
    }
    DeltaTables.refuseLoaded(fullName(ident));
    return loaded(ident, request("load_table", ident));
  }

  @Override
  public Table loadTable(Identifier ident, Set<TableWritePrivilege> privileges) {
    return SavedRows.loaded(ident, () -> loadTable(ident));
  }

  @Override
  public boolean tableExists(Identifier ident) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.tableExists(ident))
        : RelationCatalog.super.tableExists(ident);
  }

  /** Reads again what {@code CACHE TABLE} has kept of a table: Spark looks for its name, which Delta's plans have not. */
  @Override
  public void invalidateTable(Identifier ident) {
    if (PathsOfOthers.isPath(ident)) {
      PathsOfOthers.session().invalidateTable(ident);
    } else if (tableExists(ident) && loadTable(ident) instanceof TablestoreTable table) {
      table.renewCaches(org.apache.spark.sql.SparkSession.active());
    }
  }

  @Override
  public View loadView(Identifier ident) {
    return Views.of(PythonSide.ask(request("load_view", ident)), place);
  }

  @Override
  public View createView(Identifier ident, View view) {
    return stored(ident, view, false);
  }

  @Override
  public View replaceView(Identifier ident, View view) {
    return stored(ident, view, true);
  }

  @Override
  public View createOrReplaceView(Identifier ident, View view) {
    return stored(ident, view, true);
  }

  private View stored(Identifier ident, View view, boolean replaces) {
    ObjectNode request = request("create_view", ident).put("replace", replaces);
    Views.describe(view, place, request);
    return Views.of(PythonSide.ask(request), place);
  }

  @Override
  public boolean dropView(Identifier ident) {
    return PythonSide.ask(request("drop_view", ident)).asBoolean();
  }

  @Override
  public void renameView(Identifier from, Identifier to) {
    renamed("rename_view", from, to);
  }

  @Override
  public Table loadTable(Identifier ident, String version) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.loadTable(ident, version))
        : loaded(ident, request("load_table", ident).put("version", version));
  }

  @Override
  public Table loadTable(Identifier ident, long microseconds) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.loadTable(ident, microseconds))
        : loaded(ident, request("load_table", ident).put("microseconds", microseconds));
  }

  @Override
  public Changelog loadChangelog(Identifier ident, ChangelogContext context, CaseInsensitiveStringMap options) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.asked(c -> c.loadChangelog(ident, context, options));
    }
    ObjectNode request = request("load_changes", ident);
    VersionChanges.describe(context, request);
    return new VersionChanges(place, one(ident.namespace()), ident.name(), PythonSide.ask(request));
  }

  @Override
  public Table createTable(Identifier ident, TableInfo info) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.createTable(ident, info))
        : loaded(ident, creation("create_table", ident, info));
  }

  @Override
  public StagedTable stageCreate(Identifier ident, TableInfo info) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.staged(c -> c.stageCreate(ident, info))
        : staged(ident, info, false);
  }

  @Override
  public StagedTable stageReplace(Identifier ident, TableInfo info) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.staged(c -> c.stageReplace(ident, info));
    }
    loadTable(ident); // which refuses a name that is not there
    return staged(ident, info, true);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.staged(c -> c.stageCreateOrReplace(ident, info))
        : staged(ident, info, true);
  }

  private StagedTable staged(Identifier ident, TableInfo info, boolean replaces) {
    JsonNode found = PythonSide.ask(creation("stage_table", ident, info));
    return StagedTablestoreTable.of(place, one(ident.namespace()), ident.name(), replaces, found);
  }

  /** Creates a table with columns, key, partitions and options of another one, for {@code CREATE TABLE LIKE}. */
  @Override
  public Table createTableLike(Identifier ident, TableInfo info, Table source) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.asked(c -> c.createTableLike(ident, info, source));
    }
    Map<String, String> properties = new HashMap<>();
    if (source instanceof TablestoreTable table && table.location().isEmpty()) {
      throw Refusals.plain("connector-table", source.name() + " is a Kafka topic: CREATE TABLE names another topic");
    }
    if (source instanceof TablestoreTable) {
      properties.putAll(source.properties());
      properties.remove("log.kafka.topic"); // a topic is the log of one table
      properties.keySet().removeIf(name -> name.startsWith(OF_VIEWS)); // rows of the new table are not a view's
    }
    properties.putAll(info.properties());
    StructType schema = CatalogV2Util.v2ColumnsToStructType(source.columns());
    return loaded(
        ident, creation("create_table", ident, schema, source.partitioning(), source.constraints(), properties));
  }

  private ObjectNode creation(String operation, Identifier ident, TableInfo info) {
    return creation(operation, ident, info.schema(), info.partitions(), info.constraints(), info.properties());
  }

  private ObjectNode creation(
      String operation,
      Identifier ident,
      StructType schema,
      Transform[] partitioning,
      Constraint[] constraints,
      Map<String, String> properties) {
    DeltaTables.refuseCreated(fullName(ident));
    ObjectNode request = request(operation, ident);
    request.put("schema", schema.json());
    ArrayNode partitions = request.putArray("partition_by");
    for (Transform transform : partitioning) {
      partitions.add(columnOf(transform));
    }
    ArrayNode key = request.putArray("primary_key");
    for (Constraint constraint : constraints) {
      for (String column : keyOf(constraint)) {
        key.add(column);
      }
    }
    put(request.putObject("properties"), properties);
    // saveAsTable says that a table shall have it, as if the user had
    request.put("default_source", SparkSession.active().conf().get("spark.sql.sources.default"));
    request.put("case_sensitive", SQLConf.get().caseSensitiveAnalysis());
    ObjectNode defaults = request.putObject("defaults");
    for (var setting : CollectionConverters.asJava(SparkSession.active().conf().getAll()).entrySet()) {
      if (setting.getKey().startsWith(DEFAULT)) {
        defaults.put(setting.getKey(), setting.getValue());
      }
    }
    return request;
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) {
    if (PathsOfOthers.isPath(ident)) {
      return PathsOfOthers.asked(c -> c.alterTable(ident, changes));
    }
    ObjectNode request = request("alter_table", ident);
    ArrayNode listed = request.putArray("changes");
    for (TableChange change : changes) {
      TableChanges.describe(change, listed.addObject());
    }
    return loaded(ident, request);
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.dropTable(ident))
        : PythonSide.ask(request("drop_table", ident)).asBoolean();
  }

  @Override
  public boolean purgeTable(Identifier ident) {
    return PathsOfOthers.isPath(ident)
        ? PathsOfOthers.asked(c -> c.purgeTable(ident))
        : dropTable(ident); // whose files are removed at once
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    if (PathsOfOthers.isPath(from)) {
      PathsOfOthers.asked(
          c -> {
            c.renameTable(from, to);
            return null;
          });
      return;
    }
    renamed("rename_table", from, to);
  }

  private void renamed(String operation, Identifier from, Identifier to) {
    String[] namespace = to.namespace();
    if (namespace.length == 0) {
      namespace = from.namespace(); // ALTER TABLE a.b RENAME TO c
    } else if (namespace.length == 2 && namespace[0].equals(place.catalog())) {
      namespace = new String[] {namespace[1]}; // Spark hands the new name over as it is written
    }
    ObjectNode request = request(operation, from);
    PythonSide.ask(request.put("new_database", one(namespace)).put("new_table", to.name()));
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier ident) {
    return new Procedure(place, PythonSide.ask(place.request("load_procedure").put("procedure", ident.name())));
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    if (namespace.length == 1 && namespace[0].equals(PROCEDURES)) {
      JsonNode names = PythonSide.ask(place.request("list_procedures"));
      names.forEach(name -> found.add(Identifier.of(namespace, name.asText())));
    }
    return found.toArray(new Identifier[0]);
  }

  /** Returns none: with it Spark says of a name that it does not know that there is no such function. */
  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public UnboundFunction loadFunction(Identifier ident) {
    throw Refusals.thrown(new NoSuchFunctionException(ident));
  }

  private Table loaded(Identifier ident, ObjectNode request) {
    return TablestoreTable.of(place, one(ident.namespace()), ident.name(), PythonSide.ask(request));
  }

  private ObjectNode request(String operation, Identifier ident) {
    return place.request(operation, one(ident.namespace()), ident.name());
  }

  private String fullName(Identifier ident) {
    return place.catalog() + "." + one(ident.namespace()) + "." + ident.name();
  }

  private String one(String[] namespace) {
    if (namespace.length == 1) {
      return namespace[0];
    }
    if (namespace.length == 0) {
      throw Refusals.plain(
          "bad-name",
          "a name without a database is in the current one, and there is none: write " + place.catalog()
              + ".database.name, or USE a database first. A session of its own, as in foreachBatch, begins without one");
    }
    throw Refusals.plain(
        "bad-name",
        "a table of Tablestore is in one database: write " + place.catalog() + ".database.table, and not "
            + String.join(".", namespace));
  }

  static String columnOf(Transform transform) {
    NamedReference[] columns = transform.references();
    if (transform.name().equals("identity") && columns.length == 1 && columns[0].fieldNames().length == 1) {
      return columns[0].fieldNames()[0];
    }
    if (transform.name().endsWith("cluster_by")) {
      throw Refusals.plain("unsupported", CLUSTERED);
    }
    throw Refusals.plain(
        "unsupported",
        "PARTITIONED BY takes columns, and not " + transform.describe()
            + (transform.name().equals("bucket") ? ": the option bucket says into how many buckets rows go" : ""));
  }

  private static List<String> keyOf(Constraint constraint) {
    if (!(constraint instanceof PrimaryKey key)) {
      throw Refusals.plain("unsupported", "of constraints a table has only its PRIMARY KEY: " + constraint.toDDL());
    }
    List<String> names = new ArrayList<>();
    for (NamedReference column : key.columns()) {
      names.add(String.join(".", column.fieldNames()));
    }
    return names;
  }

  private static void put(ObjectNode node, Map<String, String> values) {
    values.forEach(node::put);
  }

  static Map<String, String> texts(JsonNode node) {
    Map<String, String> found = new HashMap<>();
    node.properties().forEach(entry -> found.put(entry.getKey(), entry.getValue().asText()));
    return found;
  }
}
