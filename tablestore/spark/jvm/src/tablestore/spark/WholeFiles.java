package tablestore.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Option;
import scala.collection.Set;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Fixes how files of our tables are read, whatever the settings of a session say.
 *
 * <p>Spark can leave out files that are missing or damaged ({@code spark.sql.files.ignoreMissingFiles}), and can move times
 * between calendars. What a statement has not read, it would take for rows that are not there: an UPDATE of a table without a
 * key would write the others alone. Options of a relation go over the settings, so each relation of one of our tables
 * gets them: those of this catalog's reads, of {@code format("delta")}, of its streams and of its change feed.
 */
final class WholeFiles extends Rule<LogicalPlan> {
  /** The feature of Delta that all our tables have, overlays too (FORMAT.md, section 2). */
  private static final String OURS = "tablestore.primaryKey";

  private static final String INDEX = "org.apache.spark.sql.delta.files.TahoeFileIndex";

  private static final Map<String, String> FIXED =
      Map.of(
          "ignoreMissingFiles", "false",
          "ignoreCorruptFiles", "false",
          "parquet.page.verify-checksum.enabled", "true",
          "datetimeRebaseMode", "CORRECTED", // we write the calendar of today, and no mark of Spark's says so
          "int96RebaseMode", "CORRECTED");

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof LogicalRelation relation
        && relation.relation() instanceof HadoopFsRelation files
        && !isFixed(files)
        && isOurs(files.location())) {
      return with(FIXED, relation, files);
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  private static boolean isFixed(HadoopFsRelation files) {
    return FIXED.keySet().stream().allMatch(option -> files.options().contains(option));
  }

  private static boolean isOurs(FileIndex files) {
    return isOfDelta(files.getClass())
        && Rereads.asked(Rereads.asked(files, "protocol"), "writerFeatures") instanceof Option<?> features
        && features.isDefined()
        && ((Set<?>) features.get()).exists(OURS::equals);
  }

  private static boolean isOfDelta(Class<?> type) {
    return type != null && (type.getName().equals(INDEX) || isOfDelta(type.getSuperclass()));
  }

  /** Returns a relation of files with more options, which go over the settings. */
  static LogicalRelation with(Map<String, String> more, LogicalRelation relation, HadoopFsRelation files) {
    Map<String, String> options = new HashMap<>(CollectionConverters.asJava(files.options()));
    options.putAll(more);
    HadoopFsRelation read =
        files.copy(
            files.location(),
            files.partitionSchema(),
            files.dataSchema(),
            files.bucketSpec(),
            files.fileFormat(),
            scala.collection.immutable.Map.from(CollectionConverters.asScala(options)),
            files.sparkSession());
    return relation.copy(
        read, relation.output(), relation.catalogTable(), relation.isStreaming(), relation.stream());
  }
}
