package tablestore.spark;

import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * An UPDATE, DELETE or MERGE of a table without a primary key, in which nothing identifies a row.
 *
 * <p>Spark rewrites the statement as a {@code ReplaceData} with all rows that the table shall have, from which
 * {@link RowLevelWrites} makes an overwrite.
 *
 * @param table the table, whose version the statement reads
 * @param command which of them
 */
record WholeTableOperation(TablestoreTable table, Command command) implements RowLevelOperation {
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return TablestoreTable.NoScan.of(table.structType());
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw new IllegalStateException("RowLevelWrites did not replace " + command + " of " + table.name());
  }
}
