package tablestore.spark;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/** The answers to the questions of a query, of which each is asked once: all parts of the query have the same answer. */
final class OfQuery<Q, A> {
  private final Map<QueryPlanningTracker, Map<Q, A>> answers = Collections.synchronizedMap(new WeakHashMap<>());

  /** Returns the answer for the query that is planned in this thread; where there is none it is asked each time. */
  A answer(Q question, Supplier<A> asked) {
    Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    return query.isEmpty()
        ? asked.get()
        : answers
            .computeIfAbsent(query.get(), any -> Collections.synchronizedMap(new HashMap<>()))
            .computeIfAbsent(question, any -> asked.get());
  }
}
