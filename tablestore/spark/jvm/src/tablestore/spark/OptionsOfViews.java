package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.View;

/** Refuses options of a read of a temporary view or a view of ours: Spark drops them when it puts the query there. */
final class OptionsOfViews extends Rule<LogicalPlan> {
  /** The beginning of options that Spark adds itself. */
  private static final String OF_SPARK = "__";

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
          return null;
        });
    return plan;
  }

  private void check(UnresolvedRelation named) {
    String option = named.options().keySet().stream().filter(key -> !key.startsWith(OF_SPARK)).findFirst().orElse(null);
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

  private static RuntimeException refused(UnresolvedRelation named, String kind, String option) {
    return Refusals.plain(
        "unknown-option",
        named.name() + " is " + kind + ", and a read of a view has no option " + option
            + ": write it in the view's query");
  }
}
