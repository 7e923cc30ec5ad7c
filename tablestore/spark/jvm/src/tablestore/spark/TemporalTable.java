package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.connector.catalog.MetadataColumn;

/** A table of which each row of the other side of a join reads the version of its own time. {@link TemporalJoins} joins it. */
final class TemporalTable extends TablestoreTable {
  /** The time, which names columns of the other side. */
  final Expression time;

  /** Says what is done where the version of a time has expired; null for the default. */
  final String expired;

  private TemporalTable(TablestoreTable read, JsonNode description, Expression time, String expired) {
    super(read.place, read.database, read.table, description, read.structType());
    this.time = time;
    this.expired = expired;
  }

  static TemporalTable of(TablestoreTable read, Expression time, String expired) {
    return new TemporalTable(read, read.description, time, expired);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[0]; // a row of a version is no change, so it has no kind
  }

  @Override
  public boolean equals(Object other) {
    return this == other;
  }

  @Override
  public int hashCode() {
    return System.identityHashCode(this);
  }
}
