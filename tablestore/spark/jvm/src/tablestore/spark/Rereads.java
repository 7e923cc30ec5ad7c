package tablestore.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Delta's relation of a table, and the same plan over another version of it. */
final class Rereads extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
  private final SparkSession session;
  private final Path location;
  private final long from;
  private final long to;
  private final Set<String> overlays = new HashSet<>();
  private int count;

  /**
   * Moves reads of a table from one version to another.
   *
   * @param from the version that a statement reads. What it reads at another version by its own words stays there
   * @param to the version that it shall read
   */
  Rereads(SparkSession session, TablestoreTable table, long from, long to) {
    this.session = session;
    this.location = qualified(session, new Path(table.location()));
    this.from = from;
    this.to = to;
  }

  /** Returns the path as Delta's relation has it: with its scheme. */
  static Path qualified(SparkSession session, Path path) {
    try {
      return path.getFileSystem(session.sessionState().newHadoopConf()).makeQualified(path);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns what Spark makes of a path with Delta's format; {@code version} is null for the newest one. */
  static LogicalPlan relation(SparkSession session, String location, Long version) {
    DataFrameReader reader = session.read().format("delta");
    if (version != null) {
      reader.option("versionAsOf", version);
    }
    return ((Dataset<?>) reader.load(location)).queryExecution().analyzed();
  }

  /**
   * A plan whose reads of a table are all at one version.
   *
   * @param plan the plan
   * @param count how many reads of it there are
   * @param overlays the overlays of versions with pending runs among these reads, which stay as they are
   */
  record Pinned(LogicalPlan plan, int count, Set<String> overlays) {}

  /** Returns the plan with its reads at the other version. */
  Pinned pinned(LogicalPlan plan) {
    LogicalPlan found =
        (LogicalPlan) AnalysisHelper.allowInvokingTransformsInAnalyzer(() -> plan.transformUpWithSubqueries(this));
    return new Pinned(found, count, overlays);
  }

  /** Returns a relation with the column ids of another one that it stands for. */
  static LogicalRelation sameColumns(LogicalRelation found, Seq<AttributeReference> wanted) {
    List<AttributeReference> output = new ArrayList<>();
    for (AttributeReference column : CollectionConverters.asJava(wanted)) {
      output.add((AttributeReference) byName(found, column.name()).withExprId(column.exprId()));
    }
    return found.copy(
        found.relation(),
        Attributes.seq(output),
        found.catalogTable(),
        found.isStreaming(),
        found.stream());
  }

  static Attribute byName(LogicalPlan plan, String name) {
    return find(plan, name)
        .orElseThrow(
            () ->
                Refusals.plain(
                    "metadata-changed", "column " + name + " went while the statement was planned: try again"));
  }

  static boolean has(LogicalPlan plan, String name) {
    return find(plan, name).isPresent();
  }

  private static Optional<Attribute> find(LogicalPlan plan, String name) {
    return CollectionConverters.asJava(plan.output()).stream().filter(a -> a.name().equals(name)).findFirst();
  }

  @Override
  public boolean isDefinedAt(LogicalPlan plan) {
    return plan instanceof LogicalRelation relation
        && relation.relation() instanceof HadoopFsRelation files
        && files.location().rootPaths().exists(path -> path.equals(location) || isOverlay(path));
  }

  /** Returns whether a path is an overlay: these are in the table's folder, and each belongs to one version. */
  private boolean isOverlay(Path path) {
    return path.toString().startsWith(location + Path.SEPARATOR);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    LogicalRelation relation = (LogicalRelation) plan;
    FileIndex files = ((HadoopFsRelation) relation.relation()).location();
    Path path = files.rootPaths().head();
    if (isOverlay(path)) {
      count++;
      overlays.add(path.toString());
      return plan;
    }
    if (isOfAnotherVersion(files)) {
      return plan;
    }
    count++;
    return sameColumns((LogicalRelation) relation(session, location.toString(), to), relation.output());
  }

  /** Returns whether the statement itself says {@code VERSION AS OF}. */
  private boolean isOfAnotherVersion(FileIndex files) {
    return isPinned(files) && versionOf(files) != from;
  }

  /** Returns whether a relation of Delta stays at its version. */
  static boolean isPinned(FileIndex files) {
    return (Boolean) asked(files, "isTimeTravelQuery");
  }

  /** Returns the version that a relation of Delta had when it was made. */
  static long versionOf(FileIndex files) {
    return (Long) asked(asked(files, "snapshotAtAnalysis"), "version");
  }

  /** Asks a class of Delta, which is not compiled against. */
  static Object asked(Object object, String method) {
    try {
      return object.getClass().getMethod(method).invoke(object);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this version of Delta does not fit: " + object.getClass(), e);
    }
  }
}
