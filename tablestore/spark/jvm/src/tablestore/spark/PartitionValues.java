package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.PartitionSpec;
import org.apache.spark.sql.catalyst.analysis.ResolvePartitionSpec$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedPartitionSpec;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AddPartitions;
import org.apache.spark.sql.catalyst.plans.logical.DropPartitions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ShowPartitions;
import org.apache.spark.sql.catalyst.plans.logical.TruncatePartition;
import org.apache.spark.sql.catalyst.plans.logical.V2PartitionCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses values in {@code PARTITION (…)} of a statement about partitions of ours that are not of their columns' types.
 *
 * <p>Spark casts them: with ANSI mode that is an error of its own, which names no column, and without it null, so that
 * {@code DROP PARTITION} would remove the partition of null.
 */
final class PartitionValues extends Rule<LogicalPlan> {
  private final SparkSession session;

  PartitionValues(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof V2PartitionCommand command) || !(command.table() instanceof UnresolvedTable named)) {
      return plan;
    }
    List<PartitionSpec> parts = parts(plan);
    TablestoreTable table = parts.isEmpty() ? null : OurName.table(session, named.multipartIdentifier());
    if (table != null) {
      parts.forEach(part -> check(part, table));
    }
    return plan;
  }

  private static List<PartitionSpec> parts(LogicalPlan plan) {
    if (plan instanceof DropPartitions drop) {
      return CollectionConverters.asJava(drop.parts());
    }
    if (plan instanceof AddPartitions add) {
      return CollectionConverters.asJava(add.parts());
    }
    if (plan instanceof ShowPartitions show) {
      return new ArrayList<>(CollectionConverters.asJava(show.pattern().toList()));
    }
    return plan instanceof TruncatePartition truncate ? List.of(truncate.partitionSpec()) : List.of();
  }

  private static void check(PartitionSpec part, TablestoreTable table) {
    if (!(part instanceof UnresolvedPartitionSpec given)) {
      return;
    }
    for (Map.Entry<String, String> asked : CollectionConverters.asJava(given.spec()).entrySet()) {
      StructField field = Attributes.field(table.partitionSchema(), asked.getKey());
      if (field != null && asked.getValue() != null && !isOne(asked.getValue(), field)) {
        String type = field.dataType().sql().toUpperCase(Locale.ROOT);
        throw Refusals.plain(
            "bad-partition-value",
            "the partition column " + field.name() + " of " + table.name() + " is " + type + ", and '"
                + asked.getValue() + "' is none: write a value such as " + example(field.dataType())
                + "; SHOW PARTITIONS " + table.name() + " lists those that there are");
      }
    }
  }

  private static boolean isOne(String value, StructField field) {
    var asked = scala.collection.immutable.Map.from(CollectionConverters.asScala(Map.of(field.name(), value)));
    try {
      return !ResolvePartitionSpec$.MODULE$.convertToPartIdent(asked, Attributes.seq(List.of(field))).isNullAt(0);
    } catch (IllegalArgumentException | java.time.DateTimeException | ArithmeticException error) {
      return false; // Spark's error names the value and its type, and not the column
    }
  }

  private static String example(DataType type) {
    if (type instanceof DateType) {
      return "DATE'2026-01-31'";
    }
    if (type instanceof TimestampType || type instanceof TimestampNTZType) {
      return "'2026-01-31 12:00:00'";
    }
    return type.sql().equals("BOOLEAN") ? "true" : "1";
  }
}
