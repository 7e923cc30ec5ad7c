package tablestore.spark;

import org.apache.spark.SparkBuildInfo;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Tablestore's rules for a session, by {@code spark.sql.extensions}. */
public final class TablestoreExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  private static final String SPARK = "4.2";

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    String version = SparkBuildInfo.spark_version();
    if (!version.startsWith(SPARK + ".")) {
      throw new IllegalStateException(
          "This version of Tablestore is for Spark " + SPARK + ", and this is Spark " + version
              + ": install pyspark " + SPARK + ", or the version of Tablestore for your Spark.");
    }
    extensions.injectHintResolutionRule(session -> new TemporalTables((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new OptionsOfViews((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new MergedFields((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new ColumnClauses((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new SavedRows((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new PartitionValues((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new PartialPartitions((SparkSession) session));
    extensions.injectHintResolutionRule(session -> new HeldWrites((SparkSession) session));
    extensions.injectResolutionRule(session -> new NativeReads((SparkSession) session));
    extensions.injectResolutionRule(session -> new WholeFiles());
    extensions.injectResolutionRule(session -> new Variables((SparkSession) session));
    extensions.injectResolutionRule(session -> new Watermarks());
    extensions.injectResolutionRule(session -> new Streams((SparkSession) session));
    extensions.injectResolutionRule(session -> new TextValues());
    extensions.injectPostHocResolutionRule(session -> new StreamNames());
    extensions.injectPostHocResolutionRule(session -> new EvolvingViews((SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new TemporalJoins((SparkSession) session));
    extensions.injectPostHocResolutionRule(session -> new LookupMetrics());
    extensions.injectPostHocResolutionRule(session -> new CreationOfViews());
    extensions.injectPostHocResolutionRule(session -> new RowLevelWrites((SparkSession) session));
    extensions.injectCheckRule(session -> new FoldersOfTables((SparkSession) session));
    extensions.injectPlanNormalizationRule(session -> new ChangesOfTopics());
    extensions.injectOptimizerRule(session -> new PlainScans((SparkSession) session));
    extensions.injectOptimizerRule(session -> new LookupFilters());
    extensions.injectPlannerStrategy(session -> new SharedProcesses());
    extensions.injectPlannerStrategy(session -> new Listings((SparkSession) session));
    extensions.injectParser((session, parser) -> new StatementParser((SparkSession) session, parser));
    return BoxedUnit.UNIT;
  }
}
