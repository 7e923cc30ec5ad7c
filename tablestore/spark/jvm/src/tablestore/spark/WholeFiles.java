package tablestore.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
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

  /** The files of a version, before and after Delta has planned them. */
  private static final List<String> OF_A_VERSION =
      List.of(
          "org.apache.spark.sql.delta.files.TahoeLogFileIndex",
          "org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex");

  private static final Map<String, String> FIXED =
      Map.of(
          "ignoreMissingFiles", "false",
          "ignoreCorruptFiles", "false",
          "parquet.page.verify-checksum.enabled", "true",
          "datetimeRebaseMode", "CORRECTED", // we write the calendar of today, and no mark of Spark's says so
          "int96RebaseMode", "CORRECTED");

  /**
   * The options by which Parquet's reader skips nothing. In files of earlier versions it would miss a NaN, which is
   * beyond all bounds, and -0.0, which it does not find in a dictionary as 0.0. {@link PlainScans} knows of a version
   * whether it has such files. Nobody knows of the files of a change feed, or of a stream.
   */
  private static final Map<String, String> EVERY_ROW_GROUP =
      Map.of(
          "parquet.filter.stats.enabled", "false",
          "parquet.filter.columnindex.enabled", "false",
          "parquet.filter.dictionary.enabled", "false");

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof LogicalRelation relation && relation.relation() instanceof HadoopFsRelation files) {
      LogicalRelation fixed = with(FIXED, relation, files);
      if (!OF_A_VERSION.contains(files.location().getClass().getName()) && hasFloats(files)) {
        fixed = ofEveryRowGroup(fixed);
      }
      return fixed != relation && isOfDelta(files.location()) && isOurs(files.location()) ? fixed : relation;
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  private static boolean hasFloats(HadoopFsRelation files) {
    return files
        .dataSchema()
        .existsRecursively(type -> type instanceof FloatType || type instanceof DoubleType);
  }

  /** Returns a relation of files of which no part is skipped. */
  static LogicalRelation ofEveryRowGroup(LogicalRelation relation) {
    return with(EVERY_ROW_GROUP, relation, (HadoopFsRelation) relation.relation());
  }

  /** Returns whether a class of Delta that has a protocol, such as a snapshot, is of one of our tables. */
  static boolean isOurs(Object version) {
    return version != null
        && Rereads.asked(Rereads.asked(version, "protocol"), "writerFeatures") instanceof Option<?> features
        && features.isDefined()
        && ((Set<?>) features.get()).exists(OURS::equals);
  }

  /** Returns whether these are files of a table of Delta. */
  static boolean isOfDelta(Object files) {
    return isOfDelta(files.getClass());
  }

  private static boolean isOfDelta(Class<?> type) {
    return type != null && (type.getName().equals(INDEX) || isOfDelta(type.getSuperclass()));
  }

  /** Returns a relation of files with these options, whose names have one spelling; they go over the settings. */
  private static LogicalRelation with(Map<String, String> fixed, LogicalRelation relation, HadoopFsRelation files) {
    Map<String, String> given = CollectionConverters.asJava(files.options());
    Map<String, String> options = new HashMap<>(given);
    options.keySet().removeIf(name -> fixed.keySet().stream().anyMatch(name::equalsIgnoreCase));
    options.putAll(fixed);
    if (options.equals(given)) {
      return relation;
    }
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
