package tablestore.spark;

import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/** The targets of statements: a table or its name, perhaps with an alias. */
final class Targets {
  private Targets() {}

  /** Returns a target without its alias. */
  static LogicalPlan withoutAlias(LogicalPlan target) {
    return target instanceof SubqueryAlias alias ? withoutAlias(alias.child()) : target;
  }

  /** Returns whether a target is a table of ours; a name is none yet. */
  static boolean isOurs(LogicalPlan target) {
    return withoutAlias(target) instanceof DataSourceV2Relation relation && relation.table() instanceof TablestoreTable;
  }

  /** Returns whether a target is a table of ours or the name of one. */
  static boolean isOurs(SparkSession session, LogicalPlan target) {
    return withoutAlias(target) instanceof UnresolvedRelation named
        ? OurName.table(session, named.multipartIdentifier()) != null
        : isOurs(target);
  }
}
