package tablestore.spark;

import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * An UPDATE, DELETE or MERGE of a table with a primary key.
 *
 * <p>Spark learns from it that the key identifies rows, and rewrites the statement as a {@code WriteDelta}, from
 * which {@link RowLevelWrites} makes an upsert.
 *
 * @param table the table, whose version the statement reads
 * @param command which of them
 */
record KeyedOperation(TablestoreTable table, Command command) implements SupportsDelta {
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return TablestoreTable.NoScan.of(table.structType());
  }

  @Override
  public NamedReference[] rowId() {
    return table.keyColumns();
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw new IllegalStateException("RowLevelWrites did not replace " + command + " of " + table.name());
  }
}
