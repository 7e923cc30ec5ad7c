package tablestore.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowCreateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Answers SHOW CREATE TABLE of a materialized view with its own statement; Spark would make one of a table. */
final class CreationOfViews extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof ShowCreateTable asked)
        || asked.asSerde()
        || !(asked.child() instanceof ResolvedTable found)
        || !(found.table() instanceof TablestoreTable table)
        || table.creation().isEmpty()) {
      return plan;
    }
    InternalRow row = new GenericInternalRow(new Object[] {UTF8String.fromString(table.creation())});
    Seq<InternalRow> rows = CollectionConverters.asScala(java.util.List.of(row)).toList();
    return new LocalRelation(asked.output(), rows, false, Option.empty());
  }
}
