package tablestore.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Relation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A name of a table or a view in a catalog of ours, before Spark resolves it.
 *
 * @param catalog the catalog
 * @param qualifier the catalog's name and the database
 * @param ident the name in the catalog
 */
record OurName(TablestoreCatalog catalog, List<String> qualifier, Identifier ident) {
  /** The meaning of the names of a query: several rules ask for each, some of them in each round of the analyzer. */
  private static final OfQuery<OurName, Relation> RELATIONS = new OfQuery<>();

  /** Returns what a name in a statement stands for; null if it is not of a catalog of ours. */
  static OurName of(SparkSession session, Seq<String> parts) {
    CatalogManager catalogs = session.sessionState().catalogManager();
    List<String> name = fullName(catalogs, CollectionConverters.asJava(parts));
    if (!catalogs.isCatalogRegistered(name.get(0))
        || !(catalogs.catalog(name.get(0)) instanceof TablestoreCatalog catalog)) {
      return null;
    }
    List<String> qualifier = name.subList(0, name.size() - 1);
    String[] namespace = qualifier.subList(1, qualifier.size()).toArray(new String[0]);
    return new OurName(catalog, qualifier, Identifier.of(namespace, name.get(name.size() - 1)));
  }

  /**
   * Returns the table of ours that a statement names before Spark resolves it; null for all else: tables of others, paths,
   * files, views, temporary views, and names that nothing has, of which Spark says so.
   */
  static TablestoreTable table(SparkSession session, Seq<String> parts) {
    return relation(session, parts) instanceof TablestoreTable table ? table : null;
  }

  /** Returns the table or the view of a catalog of ours that a statement names; null for all else, as {@link #table}. */
  static Relation relation(SparkSession session, Seq<String> parts) {
    OurName name = session.sessionState().catalog().isTempView(parts) ? null : of(session, parts);
    return name == null ? null : name.found();
  }

  /** Returns the catalog's name, the database and the name. */
  List<String> parts() {
    List<String> found = new ArrayList<>(qualifier);
    found.add(ident.name());
    return found;
  }

  Relation load() {
    return RELATIONS.answer(this, () -> catalog.loadRelation(ident));
  }

  /** Returns what the name stands for; null if it cannot be loaded: Spark does the same next, and says why, or finds a file. */
  private Relation found() {
    try {
      return load();
    } catch (Exception error) {
      if (error instanceof AnalysisException) { // which no method declares
        return null;
      }
      throw Refusals.thrown(error);
    }
  }

  /** Adds to a name what it leaves out: in a view that is as the view's text was resolved when it was created. */
  private static List<String> fullName(CatalogManager catalogs, List<String> parts) {
    List<String> current = new ArrayList<>(CollectionConverters.asJava(AnalysisContext.get().catalogAndNamespace()));
    if (current.isEmpty()) {
      current.add(catalogs.currentCatalog().name());
      current.addAll(List.of(catalogs.currentNamespace()));
    }
    List<String> full = new ArrayList<>();
    if (parts.size() == 1) {
      full.addAll(current);
    } else if (!catalogs.isCatalogRegistered(parts.get(0))) {
      full.add(current.get(0));
    }
    full.addAll(parts);
    return full;
  }
}
