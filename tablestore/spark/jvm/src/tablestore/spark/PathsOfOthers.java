package tablestore.spark;

import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Names that are paths of files, as in {@code delta.`/a/folder`}: no table of ours has such a name, so the session's own
 * catalog is asked. That of Delta finds tables in folders; of all else Spark reads files.
 */
final class PathsOfOthers {
  private PathsOfOthers() {}

  /** Returns whether a name is the path of files: the name of a format, and a text with a slash. */
  static boolean isPath(Identifier ident) {
    return ident.name().contains("/") && ident.namespace().length == 1 && isFormat(ident.namespace()[0]);
  }

  private static boolean isFormat(String name) {
    try {
      DataSource.lookupDataSource(name, SQLConf.get());
      return true;
    } catch (Exception e) {
      return false; // it says so by several exceptions
    }
  }

  /** Returns the answer of the session's own catalog. */
  static <T> T asked(Question<TableCatalog, T> question) {
    try {
      return question.of(session());
    } catch (Exception e) {
      throw Refusals.thrown(e);
    }
  }

  /** Returns the table that Delta's catalog makes in a folder. */
  static StagedTable staged(Question<StagingTableCatalog, StagedTable> question) {
    if (!(session() instanceof StagingTableCatalog)) {
      throw Refusals.plain(
          "no-delta-catalog",
          "Delta's catalog makes tables in folders: start the session with spark.sql.catalog.spark_catalog = "
              + "org.apache.spark.sql.delta.catalog.DeltaCatalog");
    }
    return asked(c -> question.of((StagingTableCatalog) c));
  }

  /** Returns the session's own catalog. */
  static TableCatalog session() {
    return (TableCatalog) SparkSession.active().sessionState().catalogManager().v2SessionCatalog();
  }

  /** A question to another catalog. */
  interface Question<C, T> {
    T of(C catalog) throws Exception;
  }
}
