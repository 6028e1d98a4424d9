package tableside.state;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A store opened at a version, as in a task. A key is a name and a number; a value is a number. */
final class State {
  static final String FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  final StateStore store;
  final SparkRows rows;
  private final Query query;
  private final Option<String> base;

  State(Query query, StateStore store, Option<String> base) {
    this.query = query;
    this.store = store;
    this.rows = new SparkRows(query.keySchema);
    this.base = base;
  }

  State put(String name, int number, Integer value) {
    store.put(rows.key(name, number), rows.number(value), FAMILY);
    return this;
  }

  State remove(String name, int number) {
    store.remove(rows.key(name, number), FAMILY);
    return this;
  }

  /** Returns the value, or null if the key is absent. */
  Integer get(String name, int number) {
    UnsafeRow found = store.get(rows.key(name, number), FAMILY);
    Check.equal(store.keyExists(rows.key(name, number), FAMILY), found != null);
    return found == null ? null : found.getInt(0);
  }

  Map<String, Integer> content() {
    return content(iterator(), query.keySchema);
  }

  /** Returns the records with a name, by a prefix scan. */
  Map<String, Integer> named(String name) {
    return content(store.prefixScan(rows.prefix(name), FAMILY), query.keySchema);
  }

  StateStoreIterator<UnsafeRowPair> iterator() {
    return store.iterator(FAMILY);
  }

  long keys() {
    return store.metrics().numKeys();
  }

  /** Commits, checks the information for Spark, and adds the identity to the query's commit log. */
  long commit() {
    long version = commitQuietly();
    query.committed(store.id(), version, id());
    return version;
  }

  /** Commits without an entry in the commit log, as if the driver had abandoned the attempt. */
  long commitQuietly() {
    long loaded = store.version();
    Check.equal(store.commit(), loaded + 1);
    Check.that(store.hasCommitted(), "the store says that it has committed");
    StateStoreCheckpointInfo info = store.getStateStoreCheckpointInfo();
    Check.equal(info.partitionId(), store.id().partitionId());
    Check.equal(info.batchVersion(), loaded + 1);
    Check.equal(info.stateStoreCkptId().isDefined(), query.format == 2);
    Check.equal(info.baseStateStoreCkptId(), query.format == 2 ? base : Option.empty());
    return loaded + 1;
  }

  /** The identity of the commit, in checkpoint format 2. */
  Option<String> id() {
    return store.getStateStoreCheckpointInfo().stateStoreCkptId();
  }

  void abort() {
    store.abort();
    Check.that(!store.hasCommitted(), "an aborted store has not committed");
  }

  static Map<String, Integer> content(ReadStateStore store) {
    return content(store.iterator(FAMILY));
  }

  static Map<String, Integer> content(StateStoreIterator<UnsafeRowPair> iterator) {
    return content(iterator, SparkRows.KEY);
  }

  /** Returns the records of an iterator, and checks that each key occurs once. */
  static Map<String, Integer> content(StateStoreIterator<UnsafeRowPair> iterator, StructType keys) {
    Map<String, Integer> content = new TreeMap<>();
    while (iterator.hasNext()) {
      UnsafeRowPair pair = iterator.next();
      String name = SparkRows.name(pair.key(), keys);
      Integer before = content.put(name, pair.value().getInt(0));
      Check.that(before == null, "the iterator gives the key " + name + " only once");
    }
    iterator.close();
    return content;
  }
}
