package tablestore.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.DataFrameReader;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
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

  /** Returns the plan with each read of a location at that version; null if it does not read the location. */
  static LogicalPlan at(LogicalPlan plan, SparkSession session, String location, long version) {
    Rereads rereads = new Rereads(session, location, version);
    LogicalPlan found = (LogicalPlan) plan.transformUpWithSubqueries(rereads);
    return rereads.count == 0 ? null : found;
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
        && files.location().rootPaths().contains(location);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    count++;
    LogicalRelation found = (LogicalRelation) relation(session, location.toString(), version);
    return sameColumns(found, ((LogicalRelation) plan).output());
  }
}
