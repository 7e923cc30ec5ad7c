package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The changes of some versions of a table, for {@code CHANGES FROM VERSION}. {@link NativeReads} replaces it.
 *
 * @param place the table store
 * @param database the table's database
 * @param table the table's name
 * @param description {@code table_id}, {@code schema}, {@code primary_key}, {@code first} and {@code last}; {@code net},
 *     whether the changes are those from the rows before the first version to those of the last; and {@code updates},
 *     whether such a change of a row is an update
 */
record VersionChanges(Place place, String database, String table, JsonNode description) implements Changelog {
  /** Describes for Python what a statement asks for. A range without a start has all versions. */
  static void describe(ChangelogContext context, ObjectNode request) {
    request.put("net", context.deduplicationMode() == ChangelogContext.DeduplicationMode.NET_CHANGES);
    request.put("updates", context.computeUpdates());
    ChangelogRange range = context.range();
    if (range instanceof ChangelogRange.VersionRange versions) {
      put(request, "start", versions.startingBoundInclusive()).put("version", versions.startingVersion());
      Optional<String> end = versions.endingVersion();
      end.ifPresent(version -> put(request, "end", versions.endingBoundInclusive()).put("version", version));
    } else if (range instanceof ChangelogRange.TimestampRange times) {
      put(request, "start", times.startingBoundInclusive()).put("microseconds", times.startingTimestamp());
      Optional<Long> end = times.endingTimestamp();
      end.ifPresent(time -> put(request, "end", times.endingBoundInclusive()).put("microseconds", time));
    }
  }

  private static ObjectNode put(ObjectNode request, String bound, boolean inclusive) {
    return request.putObject(bound).put("inclusive", inclusive);
  }

  /** Makes the request for the rows. */
  ObjectNode request() {
    ObjectNode request = place.request("changes", database, table).put("table_id", description.get("table_id").asText());
    request.set("first", description.get("first"));
    request.set("last", description.get("last"));
    request.set("net", description.get("net"));
    request.set("updates", description.get("updates"));
    return request;
  }

  @Override
  public String name() {
    return place.catalog() + "." + database + "." + table + " changes";
  }

  @Override
  public Column[] columns() {
    StructType columns =
        ((StructType) DataType.fromJson(description.get("schema").asText()))
            .add("_change_type", DataTypes.StringType)
            .add("_commit_version", DataTypes.LongType)
            .add("_commit_timestamp", DataTypes.TimestampType);
    return CatalogV2Util.structTypeToV2Columns(columns, false);
  }

  @Override
  public boolean containsCarryoverRows() {
    return false;
  }

  @Override
  public boolean containsIntermediateChanges() {
    return false; // net changes are read as such, since those that Spark works out have rows that are as they were
  }

  @Override
  public boolean representsUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public NamedReference[] rowId() {
    List<String> key = TablestoreTable.names(description, "primary_key");
    return TablestoreTable.references(key);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return TablestoreTable.NoScan.of(CatalogV2Util.v2ColumnsToStructType(columns()));
  }
}
