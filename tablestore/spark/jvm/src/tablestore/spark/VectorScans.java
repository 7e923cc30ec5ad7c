package tablestore.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.FileSourceMetadataAttribute;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.ByteType$;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Some;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Scans of files with deletion vectors by Delta's own Parquet format, without Delta's planning.
 *
 * <p>The format reads a vector if the file's metadata name it, and says of each row in a column whether it is deleted.
 * Delta's planning makes the same plan (its {@code PreprocessTableWithDVs}). Its classes are not compiled against.
 */
final class VectorScans {
  private static final String DELTA = "org.apache.spark.sql.delta.";
  private static final String USES_ROW_INDEX = "spark.databricks.delta.deletionVectors.useMetadataRowIndex";
  private static final String IS_DELETED = "__delta_internal_is_row_deleted";
  private static final byte KEPT = 0;

  private VectorScans() {}

  /** Returns whether a session reads vectors in the way that is done here; else Delta plans its queries. */
  static boolean areUsual(SparkSession session) {
    return Boolean.parseBoolean(session.conf().get(USES_ROW_INDEX, "true"));
  }

  /** Returns a plan with the relation's columns and rows that are not deleted. */
  static LogicalPlan plan(LogicalRelation relation, FileIndex files, SparkSession session) {
    HadoopFsRelation delta = (HadoopFsRelation) relation.relation();
    AttributeReference deleted =
        new AttributeReference(
            IS_DELETED,
            ByteType$.MODULE$,
            true,
            Metadata.empty(),
            NamedExpression.newExprId(),
            Attributes.seq(List.of()));
    HadoopFsRelation read =
        new HadoopFsRelation(
            files,
            delta.partitionSchema(),
            delta.dataSchema().add(new StructField(IS_DELETED, ByteType$.MODULE$, true, Metadata.empty())),
            Option.empty(),
            withVectors(delta.fileFormat(), files.rootPaths().head().toString()),
            delta.options(),
            session);
    AttributeReference metadata = metadata(relation, delta);
    List<AttributeReference> output = new ArrayList<>(CollectionConverters.asJava(relation.output()));
    output.removeIf(column -> column.exprId().equals(metadata.exprId()));
    output.add(metadata);
    output.add(deleted);
    LogicalPlan scan =
        relation.copy(read, Attributes.seq(output), Option.empty(), false, relation.stream());
    LogicalPlan kept = new Filter(new And(isKept(deleted), hasPlace(metadata)), scan);
    List<NamedExpression> columns = new ArrayList<>(CollectionConverters.asJava(relation.output()));
    return Attributes.project(columns, kept);
  }

  private static Expression isKept(AttributeReference deleted) {
    return new EqualTo(deleted, new Literal(KEPT, ByteType$.MODULE$));
  }

  /** Returns a condition that all rows fulfil: it makes the optimizer keep a row's place, by which vectors name it. */
  private static Expression hasPlace(AttributeReference metadata) {
    int field = ((StructType) metadata.dataType()).fieldIndex(ParquetFileFormat.ROW_INDEX());
    Expression place = new GetStructField(metadata, field, new Some<>(ParquetFileFormat.ROW_INDEX()));
    return new GreaterThanOrEqual(place, new Literal(0L, LongType$.MODULE$));
  }

  /** Returns the column with a file's metadata, among them the place of a row in it. */
  private static AttributeReference metadata(LogicalRelation relation, HadoopFsRelation delta) {
    for (AttributeReference column : CollectionConverters.asJava(relation.output())) {
      if (FileSourceMetadataAttribute.unapply(column).isDefined()) {
        return withRowIndex(column);
      }
    }
    StructType place = new StructType().add(ParquetFileFormat.ROW_INDEX_FIELD());
    return FileSourceMetadataAttribute.apply(FileFormat.METADATA_NAME(), place, false);
  }

  private static AttributeReference withRowIndex(AttributeReference column) {
    StructType fields = (StructType) column.dataType();
    if (List.of(fields.fieldNames()).contains(ParquetFileFormat.ROW_INDEX())) {
      return column;
    }
    return new AttributeReference(
        column.name(),
        fields.add(ParquetFileFormat.ROW_INDEX_FIELD()),
        column.nullable(),
        column.metadata(),
        column.exprId(),
        column.qualifier());
  }

  private static FileFormat withVectors(FileFormat format, String location) {
    try {
      return (FileFormat)
          format.getClass().getMethod("copyWithDVInfo", String.class, boolean.class).invoke(format, location, true);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this version of Delta does not fit: " + format.getClass(), e);
    }
  }

  /**
   * Returns what a file's metadata say of its vector.
   *
   * @param vector {@code storageType}, {@code pathOrInlineDv}, perhaps {@code offset}, {@code sizeInBytes} and {@code
   *     cardinality}, as in the Delta log
   */
  static Map<String, Object> metadata(JsonNode vector) {
    try {
      Class<?> descriptor = type("actions.DeletionVectorDescriptor");
      Option<Object> offset = vector.has("offset") ? new Some<>(vector.get("offset").asInt()) : Option.empty();
      Object made =
          descriptor
              .getConstructor(String.class, String.class, Option.class, int.class, long.class, Option.class)
              .newInstance(
                  vector.get("storageType").asText(),
                  vector.get("pathOrInlineDv").asText(),
                  offset,
                  vector.get("sizeInBytes").asInt(),
                  vector.get("cardinality").asLong(),
                  Option.empty());
      Object deleted = type("RowIndexFilterType").getField("IF_CONTAINED").get(null);
      return Map.of(
          "row_index_filter_id_encoded", Rereads.asked(made, "serializeToBase64"), "row_index_filter_type", deleted);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this version of Delta does not fit", e);
    }
  }

  private static Class<?> type(String name) throws ClassNotFoundException {
    return Class.forName(DELTA + name, true, Thread.currentThread().getContextClassLoader());
  }
}
