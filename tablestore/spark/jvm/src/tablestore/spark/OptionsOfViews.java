package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;

/**
 * Refuses options that Spark drops of a read of a temporary view or a view of ours, when it puts the query there; and keeps
 * those of the target of an insertion, which it drops if the query reads the target, too.
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
          return null;
        });
    return withTargets(plan);
  }

  private void check(UnresolvedRelation named) {
    String option = TablestoreWrite.given(named.options()).findFirst().orElse(null);
    if (option == null) {
      return;
    }
    if (session.sessionState().catalog().isTempView(named.multipartIdentifier())) {
      throw refused(named, "a temporary view", option);
    }
    if (OurName.relation(session, named.multipartIdentifier()) instanceof View) {
      throw refused(named, "a view", option);
    }
  }

  /** Puts each target of ours that has options in the place of its name: of one name Spark has one relation. */
  private LogicalPlan withTargets(LogicalPlan plan) {
    if (!(plan instanceof InsertIntoStatement insert)) {
      return (LogicalPlan) plan.mapChildren(child -> withTargets((LogicalPlan) child));
    }
    if (!(insert.table() instanceof UnresolvedRelation named)
        || TablestoreWrite.given(named.options()).findFirst().isEmpty()) {
      return plan;
    }
    TablestoreTable table = OurName.table(session, named.multipartIdentifier());
    if (table == null) {
      return plan;
    }
    TablestoreWrite.refuseUnknown(named.options());
    OurName name = OurName.of(session, named.multipartIdentifier());
    insert
        .query()
        .foreach(
            node -> {
              checkRead(node, name, table);
              return null;
            });
    DataSourceV2Relation target =
        DataSourceV2Relation.create(
            table, Option.apply(name.catalog()), Option.apply(name.ident()), named.options(), Option.empty());
    return insert.copy(
        target,
        insert.partitionSpec(),
        insert.userSpecifiedCols(),
        insert.query(),
        insert.overwrite(),
        insert.ifPartitionNotExists(),
        insert.byName(),
        insert.replaceCriteriaOpt(),
        insert.withSchemaEvolution());
  }

  private void checkRead(LogicalPlan node, OurName target, TablestoreTable table) {
    if (node instanceof UnresolvedRelation read && target.equals(OurName.of(session, read.multipartIdentifier()))) {
      TablestoreWrite.given(read.options())
          .findFirst()
          .ifPresent(
              option -> {
                throw RowLevelWrites.optionOfRead(table, option);
              });
    }
  }

  private static RuntimeException refused(UnresolvedRelation named, String kind, String option) {
    return Refusals.plain(
        "unknown-option",
        named.name() + " is " + kind + ", and a read of a view has no option " + option
            + ": write it in the view's query");
  }
}
