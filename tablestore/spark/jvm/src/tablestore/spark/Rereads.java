package tablestore.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Delta's relation of a table, and the same plan over another version of it. */
final class Rereads extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
  private final SparkSession session;
  private final Path location;
  private final long version;
  private int count;

  private Rereads(SparkSession session, String location, long version) {
    this.session = session;
    this.location = qualified(session, new Path(location));
    this.version = version;
  }

  /** Returns the path as Delta's relation has it: with its scheme. */
  private static Path qualified(SparkSession session, Path path) {
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
   * A plan with each read of a location at one version.
   *
   * @param plan the plan
   * @param count how many reads of it there are
   */
  record Pinned(LogicalPlan plan, int count) {}

  /** Returns the plan with each read of a location at that version. */
  static Pinned at(LogicalPlan plan, SparkSession session, String location, long version) {
    Rereads rereads = new Rereads(session, location, version);
    LogicalPlan found =
        (LogicalPlan) AnalysisHelper.allowInvokingTransformsInAnalyzer(() -> plan.transformUpWithSubqueries(rereads));
    return new Pinned(found, rereads.count);
  }

  /** Returns a relation with the column ids of another one that it stands for. */
  static LogicalRelation sameColumns(LogicalRelation found, Seq<AttributeReference> wanted) {
    List<AttributeReference> output = new ArrayList<>();
    for (AttributeReference column : CollectionConverters.asJava(wanted)) {
      output.add((AttributeReference) byName(found, column.name()).withExprId(column.exprId()));
    }
    return found.copy(
        found.relation(),
        CollectionConverters.asScala(output).toSeq(),
        found.catalogTable(),
        found.isStreaming(),
        found.stream());
  }

  static Attribute byName(LogicalPlan plan, String name) {
    for (Attribute attribute : CollectionConverters.asJava(plan.output())) {
      if (attribute.name().equals(name)) {
        return attribute;
      }
    }
    throw Refusals.plain("metadata-changed", "column " + name + " went while the statement was planned: try again");
  }

  @Override
  public boolean isDefinedAt(LogicalPlan plan) {
    return plan instanceof LogicalRelation relation
        && relation.relation() instanceof HadoopFsRelation files
        && files.location().rootPaths().exists(this::isIn);
  }

  /** Whether a path is the location, or in it, as are overlays of pending runs, which belong to one version. */
  private boolean isIn(Path path) {
    return path.equals(location) || path.toString().startsWith(location + Path.SEPARATOR);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    count++;
    if (!((HadoopFsRelation) ((LogicalRelation) plan).relation()).location().rootPaths().contains(location)) {
      return plan;
    }
    LogicalRelation found = (LogicalRelation) relation(session, location.toString(), version);
    return sameColumns(found, ((LogicalRelation) plan).output());
  }
}
