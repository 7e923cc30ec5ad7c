package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A table that a statement fills before anybody sees it: {@code CREATE TABLE … AS SELECT} and {@code REPLACE}. */
final class StagedTablestoreTable extends TablestoreTable implements StagedTable {
  private final String name;
  private final boolean replaces;

  private StagedTablestoreTable(Place place, String database, String name, boolean replaces, JsonNode description) {
    super(place, database, description.get("staged").asText(), description, schemaOf(description));
    this.name = name;
    this.replaces = replaces;
  }

  /**
   * Makes a table of what Python says of it.
   *
   * @param name the name under which it will be published
   * @param replaces whether a table of that name is dropped then
   * @param description as for {@link TablestoreTable#of}, and {@code staged}, the name until then
   */
  static StagedTablestoreTable of(
      Place place, String database, String name, boolean replaces, JsonNode description) {
    return new StagedTablestoreTable(place, database, name, replaces, description);
  }

  @Override
  public String name() {
    return place.catalog() + "." + database + "." + name;
  }

  @Override
  public void commitStagedChanges() {
    ObjectNode request = place.request("publish_table", database, name);
    PythonSide.ask(request.put("staged", table).put("replace", replaces));
  }

  @Override
  public void abortStagedChanges() {
    PythonSide.ask(place.request("drop_table", database, table));
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return new CustomTaskMetric[0];
  }
}
