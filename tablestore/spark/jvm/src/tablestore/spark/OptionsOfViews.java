package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.View;

/**
 * Refuses options that Spark drops: of a read of a temporary view or a view of ours, when it puts the query there, and
 * of the target of an insertion, if that reads the target, too.
 */
final class OptionsOfViews extends Rule<LogicalPlan> {
  private final SparkSession session;

  OptionsOfViews(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    plan.foreach(
        node -> {
          if (node instanceof UnresolvedRelation named) {
            check(named);
          }
          if (node instanceof InsertIntoStatement insert && insert.table() instanceof UnresolvedRelation target) {
            checkTarget(target);
          }
          return null;
        });
    return plan;
  }

  private void check(UnresolvedRelation named) {
    String option = TablestoreWrite.given(named.options()).findFirst().orElse(null);
    if (option == null) {
      return;
    }
    if (session.sessionState().catalog().isTempView(named.multipartIdentifier())) {
      throw refused(named, "a temporary view", option);
    }
    OurName name = OurName.of(session, named.multipartIdentifier());
    if (name != null && name.load() instanceof View) {
      throw refused(named, "a view", option);
    }
  }

  private void checkTarget(UnresolvedRelation target) {
    if (target.options().isEmpty() || session.sessionState().catalog().isTempView(target.multipartIdentifier())) {
      return;
    }
    OurName name = OurName.of(session, target.multipartIdentifier());
    if (name != null && name.load() instanceof TablestoreTable) {
      TablestoreWrite.refuseUnknown(target.options());
    }
  }

  private static RuntimeException refused(UnresolvedRelation named, String kind, String option) {
    return Refusals.plain(
        "unknown-option",
        named.name() + " is " + kind + ", and a read of a view has no option " + option
            + ": write it in the view's query");
  }
}
