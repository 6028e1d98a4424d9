package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import tableside.state.http.Settings;

/** Any provider: reads, writes, commits, and loads of earlier versions. */
final class ReadWriteCases {
  private static final String CANNOT_LOAD = "CANNOT_LOAD_STATE_STORE";

  private ReadWriteCases() {}

  public static void versionZeroIsEmpty(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      State state = partition.at(0);
      Check.equal(state.store.version(), 0L);
      Check.equal(state.store.id(), partition.id);
      Check.that(!state.store.hasCommitted(), "nothing is committed yet");
      Check.equal(state.get("a", 1), null);
      Check.equal(state.content(), Map.of());
      state.abort();
    }
  }

  public static void aStoreSeesItsOwnWrites(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      State state = partition.at(0).put("a", 1, 10).put("b", 2, 20).put("b", 3, 30).put("a", 1, 11);
      Check.equal(state.get("a", 1), 11);
      Check.equal(state.get("b", 2), 20);
      Check.equal(state.get("b", 4), null);
      state.remove("b", 2);
      Check.equal(state.get("b", 2), null);
      Check.equal(state.content(), Map.of("a/1", 11, "b/3", 30));
      Check.equal(state.commit(), 1L);
      Check.equal(partition.content(1), Map.of("a/1", 11, "b/3", 30));
    }
  }

  public static void uncommittedChangesAreInvisible(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10).put("b", 2, 20));
      State writing = partition.at(1).put("a", 1, 11).put("c", 3, 30).remove("b", 2);
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
      Check.fails(CANNOT_LOAD, () -> partition.at(2));
      writing.commit();
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
      Check.equal(partition.content(2), Map.of("a/1", 11, "c/3", 30));
    }
  }

  public static void anotherProviderContinues(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 10).put("b", 2, 20));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
      partition.commit(1, state -> state.put("c", 3, 30).remove("a", 1));
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("b/2", 20, "c/3", 30));
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
      Check.equal(partition.content(0), Map.of());
    }
  }

  public static void abortLeavesTheCommittedVersion(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
      partition.at(1).put("a", 1, 99).put("b", 2, 99).abort();
      Check.equal(partition.content(1), Map.of("a/1", 10));
      partition.at(1).remove("a", 1).abort();
      Check.equal(partition.content(1), Map.of("a/1", 10));
      partition.commit(1, state -> state.put("c", 3, 30));
      Check.equal(partition.content(2), Map.of("a/1", 10, "c/3", 30));
    }
  }

  public static void anAbortedFirstVersionIsNoVersion(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.at(0).put("a", 1, 10).abort();
      Check.equal(partition.content(0), Map.of());
      Check.fails(CANNOT_LOAD, () -> partition.at(1));
    }
  }

  public static void putRemoveAndPutOfOneKey(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 1).remove("a", 1).put("a", 1, 2).put("b", 1, 1).remove("b", 1));
      Check.equal(partition.content(1), Map.of("a/1", 2));
      partition.commit(1, state -> state.remove("a", 1).put("a", 1, 3).put("b", 1, 4));
      State state = partition.commit(2, changed -> changed.put("a", 1, 5).remove("a", 1).remove("b", 1).put("b", 1, 6));
      Check.equal(state.keys(), 1L);
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(1), Map.of("a/1", 2));
      Check.equal(partition.content(2), Map.of("a/1", 3, "b/1", 4));
      Check.equal(partition.content(3), Map.of("b/1", 6));
    }
  }

  public static void removingAnAbsentKeyChangesNothing(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.remove("x", 1).put("a", 1, 10).remove("x", 2));
      State state = partition.commit(1, changed -> changed.remove("x", 1));
      Check.equal(state.keys(), 1L);
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 10));
    }
  }

  public static void aCommitWithoutUpdatesMakesAVersion(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> {});
      Check.equal(partition.content(1), Map.of());
      partition.commit(1, state -> state.put("a", 1, 10));
      partition.commit(2, state -> {});
      partition.commit(3, state -> {});
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(1), Map.of());
      Check.equal(partition.content(4), Map.of("a/1", 10));
      partition.commit(4, state -> state.put("b", 1, 20));
      Check.equal(partition.content(5), Map.of("a/1", 10, "b/1", 20));
    }
  }

  public static void allKeysMayBeRemoved(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 10).put("b", 2, 20));
      State state = partition.commit(1, changed -> changed.remove("a", 1).remove("b", 2));
      Check.equal(state.keys(), 0L);
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of());
      Check.equal(partition.content(1), Map.of("a/1", 10, "b/2", 20));
    }
  }

  public static void noSuchVersionCannotBeLoaded(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      Check.fails(CANNOT_LOAD, () -> partition.at(-1));
      Check.fails(CANNOT_LOAD, () -> partition.at(1));
      Check.fails(CANNOT_LOAD, () -> partition.reading(-1));
      Check.fails(CANNOT_LOAD, () -> partition.reading(1));
      partition.commit(0, state -> state.put("a", 1, 10));
      Check.fails(CANNOT_LOAD, () -> partition.at(-1));
      Check.fails(CANNOT_LOAD, () -> partition.at(2));
      Check.fails(CANNOT_LOAD, () -> partition.reading(7));
      Check.equal(partition.content(1), Map.of("a/1", 10));
    }
    try (Partition partition = query.restarted().open()) {
      Check.fails(CANNOT_LOAD, () -> partition.at(2));
      Check.equal(partition.content(1), Map.of("a/1", 10));
    }
  }

  public static void aReadStoreIsIsolatedFromLaterCommits(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10).put("b", 2, 20));
      ReadStateStore reading = partition.reading(1);
      Check.equal(reading.version(), 1L);
      SparkRows rows = new SparkRows();
      State writing = partition.at(1).put("a", 1, 11).remove("b", 2);
      Check.equal(reading.get(rows.key("a", 1), State.FAMILY).getInt(0), 10);
      writing.commit();
      Check.equal(State.content(reading), Map.of("a/1", 10, "b/2", 20));
      reading.abort();
      Check.equal(partition.content(2), Map.of("a/1", 11));
      partition.commit(2, state -> state.put("c", 3, 30));
      Check.equal(partition.content(3), Map.of("a/1", 11, "c/3", 30));
    }
  }

  public static void aReadStoreMayBeReleasedOrAbortedAndTheVersionOpenedAgain(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
      for (int round = 0; round < 3; round++) {
        partition.reading(1).release();
        partition.reading(1).abort();
      }
      Check.equal(partition.content(1), Map.of("a/1", 10));
      partition.commit(1, state -> state.put("a", 1, 11));
      Check.equal(partition.content(2), Map.of("a/1", 11));
    }
  }

  public static void aStoreMayBeReleasedWithoutChanges(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
      partition.at(1).store.release();
      State state = partition.at(1);
      state.store.release();
      Check.that(!state.store.hasCommitted(), "a released store has not committed");
      partition.commit(1, changed -> changed.put("a", 1, 11));
      Check.equal(partition.content(2), Map.of("a/1", 11));
    }
  }

  public static void aReadStoreIsUpgradedToAWriteStore(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
      State state = upgraded(partition, 1);
      Check.equal(state.get("a", 1), 10);
      state.put("a", 1, 11).put("b", 2, 20).commit();
      state = upgraded(partition, 2);
      state.put("x", 1, 1).abort();
      Check.equal(partition.content(1), Map.of("a/1", 10));
      Check.equal(partition.content(2), Map.of("a/1", 11, "b/2", 20));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 11, "b/2", 20));
    }
  }

  private static State upgraded(Partition partition, long version) {
    ReadStateStore reading = partition.reading(version);
    var uid = partition.query.idOf(partition.id, version);
    var store = partition.provider.upgradeReadStoreToWriteStore(reading, version, uid, false);
    return new State(partition.query, store, uid);
  }

  /** Values that take several groups of chunks, next to short ones, from deltas and from a snapshot. */
  public static void longValuesAreReadBack(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2).setting("chunk_bytes_max", 16 << 10);
    query.valueSchema = SparkRows.BYTES;
    byte[][] values = {bytes(1, 500_000), bytes(2, 9), bytes(3, 600_000)};
    try (Partition partition = query.open()) {
      for (int version = 0; version < values.length; version++) {
        State state = partition.at(version);
        state.store.put(state.rows.key("short", version), state.rows.bytes(bytes(version, 20)), State.FAMILY);
        state.store.put(state.rows.key("long", 0), state.rows.bytes(values[version]), State.FAMILY);
        state.store.put(state.rows.key("long", 1), state.rows.bytes(values[0]), State.FAMILY);
        state.commit();
        checkLong(partition, version + 1, values);
      }
    }
    for (int round = 0; round < 2; round++) { // then with a snapshot of the last version
      try (Partition partition = query.restarted().open()) {
        checkLong(partition, 2, values);
        checkLong(partition, 3, values);
        partition.provider.doMaintenance();
      }
    }
  }

  /** Chunks of the largest size fit in a value of the service's default limit, also if they cannot be compressed. */
  public static void theLargestChunksFitInAValue(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", Settings.CHUNK_BYTES_MAX);
    query.valueSchema = SparkRows.BYTES;
    byte[][] values = {bytes(1, 2_000_000)};
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      state.store.put(state.rows.key("short", 0), state.rows.bytes(bytes(0, 20)), State.FAMILY);
      state.store.put(state.rows.key("long", 0), state.rows.bytes(values[0]), State.FAMILY);
      state.store.put(state.rows.key("long", 1), state.rows.bytes(values[0]), State.FAMILY);
      state.commit();
      checkLong(partition, 1, values);
    }
  }

  private static void checkLong(Partition partition, int version, byte[][] values) {
    ReadStateStore store = partition.reading(version);
    SparkRows rows = new SparkRows();
    Check.that(Arrays.equals(value(store, rows.key("long", 0)), values[version - 1]), "it is the version's value");
    Check.that(Arrays.equals(value(store, rows.key("long", 1)), values[0]), "the other value is unchanged");
    for (int number = 0; number < version; number++) {
      Check.that(Arrays.equals(value(store, rows.key("short", number)), bytes(number, 20)), "short values are there");
    }
    store.release();
  }

  private static byte[] value(ReadStateStore store, UnsafeRow key) {
    return store.get(key, State.FAMILY).getBinary(0);
  }

  private static byte[] bytes(int seed, int length) {
    byte[] bytes = new byte[length];
    new Random(seed).nextBytes(bytes);
    return bytes;
  }
}
