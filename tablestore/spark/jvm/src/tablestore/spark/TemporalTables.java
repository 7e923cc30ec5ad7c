package tablestore.spark;

import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;

/**
 * Puts a {@link TemporalTable} where a statement reads a table of ours {@code FOR SYSTEM_TIME AS OF} a column, which
 * Python has made an option of the table. It runs before Spark resolves names, since Spark loses options of a table that
 * a statement names several times.
 */
final class TemporalTables extends Rule<LogicalPlan> {
  private static final String TIME = "system_time";
  private static final String EXPIRED = "expired";

  private final SparkSession session;

  TemporalTables(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof UnresolvedRelation named && named.options().containsKey(TIME)) {
      LogicalPlan found = found(named);
      return found == null ? plan : found;
    }
    return (LogicalPlan) plan.mapChildren(child -> apply((LogicalPlan) child));
  }

  /** Returns the table; null if the name is not of a catalog of ours. */
  private LogicalPlan found(UnresolvedRelation named) {
    if (isTemporaryView(named)) {
      throw refused(named.name(), "is a temporary view");
    }
    if (named.isStreaming()) {
      throw refused(named.name(), "is a stream");
    }
    OurName name = OurName.of(session, named.multipartIdentifier());
    if (name == null) {
      return null;
    }
    TemporalTable table = TemporalTable.of(managed(name), time(named), expired(named));
    DataSourceV2Relation relation =
        DataSourceV2Relation.create(table, Option.apply(name.catalog()), Option.apply(name.ident()));
    return new SubqueryAlias(new AliasIdentifier(name.ident().name(), Attributes.seq(name.qualifier())), relation);
  }

  /** Returns whether a name is that of a temporary view; in a view it is only if it was so when that was created. */
  private boolean isTemporaryView(UnresolvedRelation named) {
    AnalysisContext context = AnalysisContext.get();
    String asked = named.multipartIdentifier().mkString(".");
    return session.sessionState().catalog().isTempView(named.multipartIdentifier())
        && (context.catalogAndNamespace().isEmpty()
            || context.referredTempViewNames().exists(name -> asked.equalsIgnoreCase(name.mkString("."))));
  }

  private static TablestoreTable managed(OurName name) {
    Identifier ident = name.ident();
    if (!(name.load() instanceof TablestoreTable table)) {
      throw refused(ident.toString(), "is a view");
    }
    if (table.location().isEmpty()) {
      throw refused(ident.toString(), "is a Kafka topic");
    }
    if (ident.name().contains("$")) {
      throw refused(ident.toString(), "is a system table");
    }
    return table;
  }

  private static RuntimeException refused(String name, String what) {
    return Refusals.plain(
        "temporal-join",
        name + " " + what + ", which has no versions by time: FOR SYSTEM_TIME AS OF a column is for managed tables");
  }

  private Expression time(UnresolvedRelation named) {
    try {
      return session.sessionState().sqlParser().parseExpression(named.options().get(TIME));
    } catch (ParseException e) {
      throw Refusals.thrown(e);
    }
  }

  private static String expired(UnresolvedRelation named) {
    for (String option : named.options().keySet()) {
      if (!option.equals(TIME) && !option.equals(EXPIRED)) {
        throw Refusals.plain(
            "unknown-option",
            "a table that is read FOR SYSTEM_TIME AS OF a column has no option " + option + "; it has " + EXPIRED);
      }
    }
    return named.options().get(EXPIRED);
  }
}
