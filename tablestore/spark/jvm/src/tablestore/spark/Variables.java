package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.VariableResolution;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.VariableReference;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Finds session variables in UPDATE of a table of ours, where Spark looks for columns alone. Columns come first. */
final class Variables extends Rule<LogicalPlan> {
  private final SparkSession session;

  Variables(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof UpdateTable update) || update.resolved() || !Targets.isOurs(update.table())) {
      return plan;
    }
    for (Assignment assignment : CollectionConverters.asJava(update.assignments())) {
      if (!assignment.key().resolved()) {
        return plan; // Spark says that there is no such column
      }
    }
    CatalogManager catalogs = session.sessionState().catalogManager();
    VariableResolution variables = new VariableResolution(catalogs.tempVariableManager(), catalogs);
    return (LogicalPlan) update.transformExpressions(new Found(update.table(), variables));
  }

  private static final class Found extends AbstractPartialFunction<Expression, Expression> {
    private final LogicalPlan target;
    private final VariableResolution variables;

    Found(LogicalPlan target, VariableResolution variables) {
      this.target = target;
      this.variables = variables;
    }

    private Option<VariableReference> of(Expression part) {
      if (!(part instanceof UnresolvedAttribute name) || isColumn(name)) {
        return Option.empty();
      }
      return variables.lookupVariable(name.nameParts());
    }

    /** Returns whether Spark will find a column; within a lambda function it looks for it after this rule has run. */
    private boolean isColumn(UnresolvedAttribute name) {
      return target.resolve(name.nameParts(), SQLConf.get().resolver()).isDefined();
    }

    @Override
    public boolean isDefinedAt(Expression part) {
      return of(part).isDefined();
    }

    @Override
    public Expression apply(Expression part) {
      return of(part).get();
    }
  }
}
