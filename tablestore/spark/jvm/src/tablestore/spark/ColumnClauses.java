package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.ColumnDefinition;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Refuses DEFAULT, GENERATED and IDENTITY of new tables: Spark says that the wrong catalog may have been named. */
final class ColumnClauses extends Rule<LogicalPlan> {
  private final SparkSession session;

  ColumnClauses(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof CreateTable create) {
      check(create.name(), create.columns());
    } else if (plan instanceof ReplaceTable replace) {
      check(replace.name(), replace.columns());
    }
    return plan;
  }

  private void check(LogicalPlan name, Seq<ColumnDefinition> columns) {
    for (ColumnDefinition column : CollectionConverters.asJava(columns)) {
      String reason = refusal(column);
      if (reason != null
          && name instanceof UnresolvedIdentifier named
          && OurName.of(session, named.nameParts()) != null) {
        throw Refusals.plain("unsupported", "column " + column.name() + " " + reason);
      }
    }
  }

  private static String refusal(ColumnDefinition column) {
    if (column.defaultValue().isDefined()) {
      return "cannot have a DEFAULT: rows that lack a column have null there. Leave DEFAULT out, and write the value";
    }
    if (column.generationExpression().isDefined()) {
      return "cannot be GENERATED: rows are kept as they were written. Compute it where the rows are written, or in a view";
    }
    if (column.identityColumnSpec().isDefined()) {
      return "cannot be an IDENTITY: no table counts its rows. Write the number, or uuid() into a STRING";
    }
    return null;
  }
}
