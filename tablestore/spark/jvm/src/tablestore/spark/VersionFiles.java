package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** The files of a version, of which Python leaves out those that can have no wanted row. */
final class VersionFiles implements FileIndex {
  private final ObjectNode table;
  private final Path root;
  private final long version;
  private final long bytes;
  private final StructType partitionSchema;

  /**
   * Makes the index.
   *
   * @param table a request about the table
   * @param root its location
   * @param answer {@code version} and {@code bytes}
   * @param partitionSchema the columns by which it is partitioned
   */
  VersionFiles(ObjectNode table, Path root, JsonNode answer, StructType partitionSchema) {
    this.table = table;
    this.root = root;
    this.version = answer.get("version").asLong();
    this.bytes = answer.get("bytes").asLong();
    this.partitionSchema = partitionSchema;
  }

  @Override
  public Seq<Path> rootPaths() {
    return Attributes.seq(List.of(root));
  }

  @Override
  public StructType partitionSchema() {
    return partitionSchema;
  }

  @Override
  public long sizeInBytes() {
    return bytes;
  }

  @Override
  public void refresh() {} // a version does not change

  @Override
  public String[] inputFiles() {
    List<String> found = new ArrayList<>();
    for (PartitionDirectory directory : directories(List.of())) {
      for (FileStatusWithMetadata file : CollectionConverters.asJava(directory.files())) {
        found.add(file.getPath().toString());
      }
    }
    return found.toArray(new String[0]);
  }

  @Override
  public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    List<Expression> ofPartitions = CollectionConverters.asJava(partitionFilters);
    List<Expression> all = new ArrayList<>(ofPartitions);
    all.addAll(CollectionConverters.asJava(dataFilters));
    List<PartitionDirectory> found = directories(all);
    if (!ofPartitions.isEmpty()) { // Spark does not apply these to rows any more
      BasePredicate wanted = ofPartitions.stream().reduce(And::new).map(this::predicate).get();
      found.removeIf(directory -> !wanted.eval(directory.values()));
    }
    return Attributes.seq(found);
  }

  private BasePredicate predicate(Expression condition) {
    return Predicate.createInterpreted(
        (Expression)
            condition.transform(
                new AbstractPartialFunction<Expression, Expression>() {
                  @Override
                  public boolean isDefinedAt(Expression part) {
                    return part instanceof AttributeReference;
                  }

                  @Override
                  public Expression apply(Expression part) {
                    int place = partitionSchema.fieldIndex(((AttributeReference) part).name());
                    return new BoundReference(place, partitionSchema.fields()[place].dataType(), true);
                  }
                }));
  }

  private List<PartitionDirectory> directories(List<Expression> filters) {
    ObjectNode request = table.deepCopy().put("operation", "plain_files").put("version", version);
    ArrayNode conditions = request.putArray("conditions");
    filters.forEach(filter -> Conditions.add(filter, conditions));
    List<PartitionDirectory> found = new ArrayList<>();
    for (JsonNode partition : PythonSide.ask(request)) {
      List<FileStatusWithMetadata> files = new ArrayList<>();
      for (JsonNode file : partition.get("files")) {
        files.add(new FileStatusWithMetadata(status(file), metadata(file)));
      }
      found.add(new PartitionDirectory(Values.row(partition.get("values"), partitionSchema), Attributes.seq(files)));
    }
    return found;
  }

  private static Map<String, Object> metadata(JsonNode file) {
    return file.has(3)
        ? Map$.MODULE$.from(CollectionConverters.asScala(VectorScans.metadata(file.get(3))))
        : Map$.MODULE$.<String, Object>empty();
  }

  private FileStatus status(JsonNode file) {
    Path path = new Path(root, new Path(null, null, file.get(0).asText()));
    return new FileStatus(file.get(1).asLong(), false, 0, 0, file.get(2).asLong(), path);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof VersionFiles that && root.equals(that.root) && version == that.version;
  }

  @Override
  public int hashCode() {
    return root.hashCode() + Long.hashCode(version);
  }
}
