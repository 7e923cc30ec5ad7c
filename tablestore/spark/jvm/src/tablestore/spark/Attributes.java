package tablestore.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The columns of Spark's plans, and their names. */
final class Attributes {
  private Attributes() {}

  /** Returns the ids of the columns that an expression names. */
  static Set<ExprId> ids(Expression expression) {
    return ids(expression.references());
  }

  /** Returns the ids of columns; what Spark has not resolved yet has none. */
  static Set<ExprId> ids(AttributeSet columns) {
    Set<ExprId> found = new HashSet<>();
    for (Attribute column : CollectionConverters.asJava(columns.toSeq())) {
      if (column.resolved()) {
        found.add(column.exprId());
      }
    }
    return found;
  }

  /** Returns an expression under a name, as a new column; it keeps the metadata of a column, such as a watermark. */
  static Alias as(Expression expression, String name) {
    return alias(expression, name, NamedExpression.newExprId(), none(), Option.empty());
  }

  /** Returns an expression in the place of a column, whose id and name it gets. */
  static Alias as(Expression expression, Attribute wanted) {
    return alias(expression, wanted.name(), wanted.exprId(), wanted.qualifier(), new Some<>(wanted.metadata()));
  }

  private static Alias alias(
      Expression expression, String name, ExprId id, Seq<String> qualifier, Option<Metadata> metadata) {
    return new Alias(expression, name, id, qualifier, metadata, none());
  }

  private static Seq<String> none() {
    return seq(List.of());
  }

  /** Returns a plan with some columns. */
  static Project project(List<? extends NamedExpression> columns, LogicalPlan plan) {
    return new Project(seq(new ArrayList<NamedExpression>(columns)), plan);
  }

  /** Returns whether two names are the same to the session. */
  static boolean isSame(String name, String other) {
    return (boolean) SQLConf.get().resolver().apply(name, other);
  }

  /** Returns the field with a name; null if there is none. */
  static StructField field(StructType type, String name) {
    for (StructField field : type.fields()) {
      if (isSame(field.name(), name)) {
        return field;
      }
    }
    return null;
  }

  static <T> Seq<T> seq(List<T> items) {
    return CollectionConverters.asScala(items).toSeq();
  }

  /** Returns the conditions that AND joins in the condition of a join; an empty list if that has none. */
  static List<Expression> conjuncts(Option<Expression> condition) {
    return condition.isDefined() ? conjuncts(condition.get()) : List.of();
  }

  /** Returns the conditions that AND joins. */
  static List<Expression> conjuncts(Expression condition) {
    List<Expression> found = new ArrayList<>();
    if (condition instanceof And and) {
      found.addAll(conjuncts(and.left()));
      found.addAll(conjuncts(and.right()));
    } else {
      found.add(condition);
    }
    return found;
  }

  /** Returns a condition that is fulfilled if all of some are, of which there is at least one. */
  static Expression all(List<Expression> conditions) {
    return conditions.stream().reduce(And::new).orElseThrow();
  }
}
