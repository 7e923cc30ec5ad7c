package tablestore.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.PartitionSpec;
import org.apache.spark.sql.catalyst.analysis.ResolvePartitionSpec$;
import org.apache.spark.sql.catalyst.analysis.ResolvedPartitionSpec;
import org.apache.spark.sql.catalyst.analysis.UnresolvedPartitionSpec;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.DropPartitions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes {@code ALTER TABLE … DROP PARTITION} with values of some partition columns name all partitions that have them,
 * as Spark does for a table of Hive. It runs before Spark resolves names: right behind it Spark refuses such values.
 */
final class PartialPartitions extends Rule<LogicalPlan> {
  private final SparkSession session;

  PartialPartitions(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof DropPartitions drop) || !(drop.table() instanceof UnresolvedTable named)) {
      return plan;
    }
    TablestoreTable table = OurName.table(session, named.multipartIdentifier());
    if (table == null) {
      return plan;
    }
    List<PartitionSpec> parts = new ArrayList<>();
    for (PartitionSpec part : CollectionConverters.asJava(drop.parts())) {
      parts.addAll(whole(part, table, drop.ifExists()));
    }
    return new DropPartitions(drop.table(), Attributes.seq(parts), drop.ifExists(), drop.purge());
  }

  private static List<PartitionSpec> whole(PartitionSpec part, TablestoreTable table, boolean ifExists) {
    StructType partitions = table.partitionSchema();
    if (!(part instanceof UnresolvedPartitionSpec given) || given.spec().size() == partitions.length()) {
      return List.of(part);
    }
    Map<String, String> spec = new HashMap<>(CollectionConverters.asJava(given.spec()));
    List<StructField> fields = new ArrayList<>();
    Map<String, String> values = new HashMap<>();
    for (StructField field : partitions.fields()) {
      for (String column : List.copyOf(spec.keySet())) {
        if (Attributes.isSame(column, field.name())) {
          fields.add(field);
          values.put(field.name(), spec.remove(column));
        }
      }
    }
    if (!spec.isEmpty()) {
      return List.of(part); // Spark says which column is no partition column
    }
    scala.collection.immutable.Map<String, String> asked =
        scala.collection.immutable.Map.from(CollectionConverters.asScala(values));
    InternalRow wanted = ResolvePartitionSpec$.MODULE$.convertToPartIdent(asked, Attributes.seq(fields));
    String[] columns = fields.stream().map(StructField::name).toArray(String[]::new);
    List<PartitionSpec> found = new ArrayList<>();
    for (InternalRow partition : table.listPartitionIdentifiers(columns, wanted)) {
      found.add(new ResolvedPartitionSpec(Attributes.seq(List.of(partitions.fieldNames())), partition, Option.empty()));
    }
    if (found.isEmpty() && !ifExists) {
      List<String> texts = fields.stream().map(field -> field.name() + " = " + values.get(field.name())).toList();
      throw Refusals.plain(
          "partition-not-found",
          "no partition of " + table.name() + " has " + String.join(" and ", texts)
              + ": SHOW PARTITIONS lists them, and DROP IF EXISTS PARTITION accepts that there is none");
    }
    return found;
  }
}
