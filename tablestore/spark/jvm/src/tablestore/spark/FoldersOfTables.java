package tablestore.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.plans.logical.AlterTableCommand;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.V2CreateTablePlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Refuses what Delta would write into the folder of a table of ours, as {@code DeltaTable.forPath} and {@code
 * delta.`/folder`} do, with a sentence and before there are files of it.
 *
 * <p>Delta refuses it as well, since it lacks features of these tables: when it commits, with a trace of Java.
 */
final class FoldersOfTables extends AbstractFunction1<LogicalPlan, BoxedUnit> {
  private static final String COMMANDS = "org.apache.spark.sql.delta.commands.";
  private static final String COMMANDS_OF_API = "io.delta.tables.execution.";
  private static final String TABLE = "org.apache.spark.sql.delta.catalog.DeltaTableV2";
  private static final String LOG = "org.apache.spark.sql.delta.DeltaLog";
  private static final String SOURCE = "org.apache.spark.sql.delta.sources.DeltaDataSource";

  /** The namespace of tables in folders. */
  private static final List<String> DELTA = List.of("delta");

  private final SparkSession session;

  FoldersOfTables(SparkSession session) {
    this.session = session;
  }

  @Override
  public BoxedUnit apply(LogicalPlan plan) {
    if (writes(plan)) {
      // what a command reads is in its children, which are plans
      CollectionConverters.asJava(plan.productIterator()).forEachRemaining(FoldersOfTables::check);
    } else if (isTableOfOurs(folderOf(plan))) {
      throw refused();
    }
    return BoxedUnit.UNIT;
  }

  /** Returns the folder that a command names, which has a table or not; null for all else. */
  private static String folderOf(LogicalPlan plan) {
    if (plan instanceof SaveIntoDataSourceCommand save && save.dataSource().getClass().getName().equals(SOURCE)) {
      return save.options().contains("path") ? save.options().apply("path") : null;
    }
    LogicalPlan name =
        plan instanceof ReplaceTable || plan instanceof ReplaceTableAsSelect ? ((V2CreateTablePlan) plan).name() : null;
    return name instanceof ResolvedIdentifier named && List.of(named.identifier().namespace()).equals(DELTA)
        ? named.identifier().name()
        : null;
  }

  private static boolean writes(LogicalPlan plan) {
    String name = plan.getClass().getName();
    boolean isOfDelta = name.startsWith(COMMANDS) || name.startsWith(COMMANDS_OF_API);
    String simple = plan.getClass().getSimpleName();
    return plan instanceof V2WriteCommand
        || plan instanceof AlterTableCommand
        || (isOfDelta && !simple.startsWith("Describe") && !simple.startsWith("Show"));
  }

  private static void check(Object subject) {
    if (subject instanceof ResolvedTable resolved) {
      check(resolved.table());
    } else if (subject instanceof DataSourceV2Relation relation) {
      check(relation.table());
    } else if (WholeFiles.isOurs(versionOf(subject))) {
      throw refused();
    }
  }

  /** Returns what has the protocol of a table of Delta that a command names; null for all else. */
  private static Object versionOf(Object subject) {
    String name = subject == null ? "" : subject.getClass().getName();
    return name.equals(TABLE)
        ? Rereads.asked(subject, "initialSnapshot")
        : name.equals(LOG) ? Rereads.asked(subject, "unsafeVolatileSnapshot") : WholeFiles.isOfDelta(subject) ? subject : null;
  }

  private boolean isTableOfOurs(String folder) {
    try {
      return folder != null
          && Rereads.relation(session, folder, null) instanceof LogicalRelation found
          && found.relation() instanceof HadoopFsRelation files
          && WholeFiles.isOurs(versionOf(files.location()));
    } catch (Exception error) {
      return false; // there is no table yet, or Delta says what is wrong
    }
  }

  private static RuntimeException refused() {
    return Refusals.plain(
        "delta-folder",
        "the folder is that of a table of Tablestore, of whose key, buckets and log Delta knows nothing, so it can only "
            + "be read there: write by the table's name, as in UPDATE catalog.database.table, DELETE, MERGE INTO, "
            + "df.writeTo or df.mergeInto; OPTIMIZE, VACUUM and RESTORE take that name, too");
  }
}
