package tablestore.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.LogicalRDD$;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.streaming.OutputMode;

/** A streaming query into a table: each micro-batch is one commit, which names the query and the batch. */
final class StreamSink implements Sink {
  private final TablestoreTable table;
  private final OutputMode mode;

  StreamSink(TablestoreTable table, OutputMode mode) {
    this.table = table;
    this.mode = mode;
  }

  @Override
  public void addBatch(long number, Dataset<Row> batch) {
    org.apache.spark.sql.classic.Dataset<Row> planned = (org.apache.spark.sql.classic.Dataset<Row>) batch;
    SparkSession session = planned.sparkSession();
    SparkContext context = session.sparkContext();
    ObjectNode request =
        table.request("write_batch")
            .put("query", context.getLocalProperty(StreamExecution.QUERY_ID_KEY()))
            .put("batch", number)
            .put("output_mode", mode.toString());
    // the query's own plan runs once, in this RDD; what Python makes of the rows is a plan of its own
    LogicalRDD rows = LogicalRDD$.MODULE$.fromDataset(planned.queryExecution().toRdd(), planned, false);
    PythonSide.give(request, session, org.apache.spark.sql.classic.Dataset.ofRows(session, rows));
    table.renewCaches(session);
  }

  @Override
  public String toString() {
    return "tablestore[" + table.name() + "]";
  }
}
