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
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Finds session variables in UPDATE, where Spark looks for columns alone. Names of columns are resolved before. */
final class Variables extends Rule<LogicalPlan> {
  private final SparkSession session;

  Variables(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!(plan instanceof UpdateTable update) || !update.table().resolved() || update.resolved()) {
      return plan;
    }
    for (Assignment assignment : CollectionConverters.asJava(update.assignments())) {
      if (!assignment.key().resolved()) {
        return plan; // Spark says that there is no such column
      }
    }
    CatalogManager catalogs = session.sessionState().catalogManager();
    VariableResolution variables = new VariableResolution(catalogs.tempVariableManager(), catalogs);
    return (LogicalPlan) update.transformExpressions(new Found(variables));
  }

  private static final class Found extends AbstractPartialFunction<Expression, Expression> {
    private final VariableResolution variables;

    Found(VariableResolution variables) {
      this.variables = variables;
    }

    private Option<VariableReference> of(Expression part) {
      return part instanceof UnresolvedAttribute name ? variables.lookupVariable(name.nameParts()) : Option.empty();
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
