package tablestore.spark;

import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SingleStatement;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Refuses options behind the name of a query of {@code WITH}, as in {@code FROM q WITH ('fresh' = 'true')}: Spark drops
 * them when it puts the query there. It works on what the parser returns, since that is before Spark does so.
 */
final class OptionsOfQueries {
  private OptionsOfQueries() {}

  /** Returns the parsed statement. */
  static LogicalPlan checked(LogicalPlan plan) {
    check(plan, Set.of());
    return plan;
  }

  private static void check(LogicalPlan plan, Set<String> queries) {
    if (plan instanceof UnresolvedWith with) {
      check(with.child(), named(with, queries));
      return;
    }
    if (plan instanceof SingleStatement statement) {
      check(statement.parsedPlan(), queries);
      return;
    }
    if (plan instanceof ExplainCommand explained) {
      check(explained.logicalPlan(), queries);
      return;
    }
    if (plan instanceof UnresolvedRelation read) {
      check(read, queries);
    }
    CollectionConverters.asJava(plan.children()).forEach(child -> check(child, queries));
    CollectionConverters.asJava(plan.expressions()).forEach(expression -> check(expression, queries));
  }

  /** Checks the queries of a WITH, of which each knows those before it; returns the names that its statement knows. */
  private static Set<String> named(UnresolvedWith with, Set<String> outer) {
    Set<String> queries = new HashSet<>(outer);
    CollectionConverters.asJava(with.cteRelations())
        .forEach(
            relation -> {
              if (with.allowRecursion()) {
                queries.add(key(relation._1()));
              }
              check(relation._2(), Set.copyOf(queries));
              queries.add(key(relation._1()));
            });
    return queries;
  }

  private static void check(Expression expression, Set<String> queries) {
    expression.foreach(
        part -> {
          if (part instanceof SubqueryExpression subquery) {
            check((LogicalPlan) subquery.plan(), queries);
          }
          return null;
        });
  }

  private static void check(UnresolvedRelation read, Set<String> queries) {
    if (!read.options().isEmpty()
        && read.multipartIdentifier().size() == 1
        && queries.contains(key(read.multipartIdentifier().head()))) {
      throw Refusals.plain(
          "unknown-option",
          read.name() + " is a query of WITH here, which has no option " + read.options().keySet().iterator().next()
              + ": write it behind the table that the query reads");
    }
  }

  private static String key(String name) {
    return SQLConf.get().caseSensitiveAnalysis() ? name : name.toLowerCase(Locale.ROOT);
  }
}
