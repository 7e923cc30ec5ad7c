package tablestore.spark;

import java.util.List;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.rdd.RDD;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.MapInArrowExec;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/** Spark's own node of {@code mapInArrow}, which takes the artifacts of no session for its Python processes. */
public final class SharedMapInArrow extends SparkPlan {
  private final MapInArrowExec node;

  /** Makes one; the arguments are those of Spark's node, and Spark copies this one by them. */
  public SharedMapInArrow(
      Expression function, Seq<Attribute> output, SparkPlan child, boolean isBarrier, Option<ResourceProfile> profile) {
    this.node = // it asks for the artifacts when it is made
        JobArtifactSet$.MODULE$.withActiveJobArtifactState(
            null, () -> new MapInArrowExec(function, output, child, isBarrier, profile));
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return node.execute();
  }

  @Override
  public Seq<SparkPlan> children() {
    return Attributes.seq(List.of(node.child()));
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return new SharedMapInArrow(node.func(), node.output(), children.head(), node.isBarrier(), node.profile());
  }

  @Override
  public Seq<Attribute> output() {
    return node.output();
  }

  @Override
  public AttributeSet producedAttributes() {
    return node.producedAttributes();
  }

  @Override
  public Partitioning outputPartitioning() {
    return node.outputPartitioning();
  }

  @Override
  public Map<String, SQLMetric> metrics() {
    return node.metrics();
  }

  @Override
  public String nodeName() {
    return node.nodeName();
  }

  @Override
  public int productArity() {
    return node.productArity();
  }

  @Override
  public Object productElement(int number) {
    return node.productElement(number);
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof SharedMapInArrow;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof SharedMapInArrow shared && node.equals(shared.node);
  }
}
