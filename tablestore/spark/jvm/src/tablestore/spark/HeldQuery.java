package tablestore.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A query that Spark takes for unresolved until {@link TextValues} puts the query in its place. */
final class HeldQuery extends LogicalPlan {
  private final LogicalPlan child;

  HeldQuery(LogicalPlan child) {
    this.child = child;
  }

  LogicalPlan child() {
    return child;
  }

  @Override
  public boolean resolved() {
    return false;
  }

  @Override
  public Seq<Attribute> output() {
    return child.output();
  }

  @Override
  public Seq<LogicalPlan> children() {
    return Attributes.seq(List.of(child));
  }

  @Override
  public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
    return new HeldQuery(children.head());
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int number) {
    return child;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof HeldQuery;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof HeldQuery that && child.equals(that.child);
  }
}
