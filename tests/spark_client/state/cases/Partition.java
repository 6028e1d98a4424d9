package tableside.state;

import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import scala.Option;

/** A partition of a query's state, with its own provider object. */
final class Partition implements AutoCloseable {
  final Query query;
  final StateStoreId id;
  final StateStoreProvider provider;

  private Partition(Query query, StateStoreId id, StateStoreProvider provider) {
    this.query = query;
    this.id = id;
    this.provider = provider;
  }

  static Partition open(Query query, StateStoreId id) {
    StateStoreProvider provider =
        StateStoreProvider.createAndInit(
            query.providerId(id),
            query.keySchema,
            query.valueSchema,
            query.keys(),
            false,
            query.storeConf(),
            query.hadoop(),
            false,
            Option.empty());
    return new Partition(query, id, provider);
  }

  /** Opens a store at a version, by its identity in the commit log. */
  State at(long version) {
    return at(version, query.idOf(id, version));
  }

  State at(long version, Option<String> uid) {
    return new State(query, provider.getStore(version, uid, false, false), uid);
  }

  ReadStateStore reading(long version) {
    return provider.getReadStore(version, query.idOf(id, version));
  }

  /** Applies changes to a version and commits them as the next version. */
  State commit(long version, Consumer<State> changes) {
    State state = at(version);
    changes.accept(state);
    state.commit();
    return state;
  }

  /** Commits versions up to this one from the one before `from`; version n puts a/n = n and total/0 = n. */
  void commitUpTo(long from, long last) {
    for (long version = from; version <= last; version++) {
      int number = (int) version;
      commit(version - 1, state -> state.put("a", number, number).put("total", 0, number));
    }
  }

  /** The content of a version that {@link #commitUpTo} commits. */
  static Map<String, Integer> expected(long version) {
    Map<String, Integer> expected = new java.util.TreeMap<>();
    for (int number = 1; number <= version; number++) {
      expected.put("a/" + number, number);
      expected.put("total/0", number);
    }
    return expected;
  }

  Map<String, Integer> content(long version) {
    return content(version, query.idOf(id, version));
  }

  Map<String, Integer> content(long version, Option<String> uid) {
    ReadStateStore store = provider.getReadStore(version, uid);
    try {
      return State.content(store.iterator(State.FAMILY), query.keySchema);
    } finally {
      store.release();
    }
  }

  @Override
  public void close() {
    provider.close();
  }
}
