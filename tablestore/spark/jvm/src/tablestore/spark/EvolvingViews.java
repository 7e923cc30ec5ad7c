package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.SchemaEvolution$;
import org.apache.spark.sql.catalyst.analysis.SchemaTypeEvolution$;
import org.apache.spark.sql.catalyst.analysis.ViewSchemaMode;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;

/**
 * Refuses reads of our views {@code WITH SCHEMA EVOLUTION} and {@code WITH SCHEMA TYPE EVOLUTION}.
 *
 * <p>A rule of Spark ({@code ViewSyncSchemaToMetaStore}) writes the columns of such a view anew when a query finds others. It
 * takes each view for one of Spark's own catalog, whose view of that name it would replace. New views of this kind are
 * refused by Python; this is for those that were made before.
 */
final class EvolvingViews extends Rule<LogicalPlan> {
  private final SparkSession session;

  EvolvingViews(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    plan.foreach(
        node -> {
          if (node instanceof View view && evolves(view.desc().viewSchemaMode()) && isOurs(view.desc())) {
            throw Refusals.plain(
                "view-schema-mode",
                "view " + view.desc().qualifiedName() + " is WITH SCHEMA " + view.desc().viewSchemaMode()
                    + ", and Spark would write its columns into another catalog: write ALTER VIEW … WITH SCHEMA BINDING, "
                    + "or CREATE OR REPLACE VIEW if columns were added or dropped");
          }
          return null;
        });
    return plan;
  }

  private static boolean evolves(ViewSchemaMode mode) {
    return mode == SchemaEvolution$.MODULE$ || mode == SchemaTypeEvolution$.MODULE$;
  }

  private boolean isOurs(CatalogTable view) {
    return view.identifier().catalog().isDefined()
        && session.sessionState().catalogManager().catalog(view.identifier().catalog().get())
            instanceof TablestoreCatalog;
  }
}
