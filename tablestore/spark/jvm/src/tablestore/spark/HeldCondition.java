package tablestore.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A condition that Spark takes for unresolved until {@link TextValues} puts the condition in its place. */
final class HeldCondition extends Expression {
  /** Stands for the condition of a statement that has none. */
  static final Expression NONE = new Literal(true, DataTypes.BooleanType);

  private final Expression child;

  HeldCondition(Expression child) {
    this.child = child;
  }

  Expression child() {
    return child;
  }

  @Override
  public boolean resolved() {
    return false;
  }

  @Override
  public boolean nullable() {
    return child.nullable();
  }

  @Override
  public DataType dataType() {
    return child.dataType();
  }

  @Override
  public Seq<Expression> children() {
    return Attributes.seq(List.of(child));
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return new HeldCondition(children.head());
  }

  @Override
  public Object eval(InternalRow row) {
    throw new UnsupportedOperationException("a held condition is never part of a plan that runs");
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException("a held condition is never part of a plan that runs");
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
    return other instanceof HeldCondition;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof HeldCondition that && child.equals(that.child);
  }
}
