package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RecordType;
import org.apache.spark.sql.execution.streaming.state.SupportsFineGrainedReplay;
import scala.Option;

/** The change feed of a store, which Spark's state reader returns for `readChangeFeed`, and the deltas it reads. */
final class ChangeFeedCases {
  private static final String CANNOT_COMMIT = "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT";
  private static final String DELTA_2 = "delta/00000000000000000002/";

  private ChangeFeedCases() {}

  /** Makes one commit for each list of {@code ["put", name, value]} and {@code ["remove", name]}; returns the feed. */
  public static List<List<Object>> feed(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.rocksdb.changelogCheckpointing.enabled", true);
    JsonNode commits = arguments.get("commits");
    for (int version = 0; version < commits.size(); version++) {
      JsonNode operations = commits.get(version);
      try (Partition partition = query.open()) { // Spark's RocksDB provider opens one store at a time
        partition.commit(version, state -> operations.forEach(operation -> apply(state, operation)));
      }
    }
    long first = arguments.path("first").asLong(1);
    try (Partition partition = query.restarted().open()) {
      return feed(partition, first, commits.size());
    }
  }

  /** Applies random operations to few keys, so that most keys change several times; returns the feed. */
  public static List<List<Object>> randomFeed(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Random random = new Random(arguments.get("seed").asLong());
    try (Partition partition = query.open()) {
      for (int version = 0; version < 4; version++) {
        partition.commit(version, state -> changeRandomly(state, random));
      }
      return feed(partition, 1, 4);
    }
  }

  /** A batch's delta is written while the batch runs; it is complete, and invisible until the commit. */
  public static void aLargeDeltaIsWrittenBeforeTheCommit(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", 1024);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      State state = partition.at(1);
      putRounds(state, 3, 1000);
      Check.that(network.items("put", DELTA_2).size() >= 16, "chunks are sent before the commit");
      try (Partition other = query.restarted().open()) {
        Check.equal(other.content(1), Partition.expected(1));
        Check.fails("CANNOT_LOAD_STATE_STORE", () -> other.content(2));
      }
      state.commit();
      Check.equal(feed(partition, 2, 2).size(), 3000);
      try (Partition other = query.restarted().open()) {
        Map<String, Integer> content = other.content(2);
        Check.equal(content.size(), 1002);
        Check.equal(content.get("k/7"), 2 * 1000 + 7);
      }
    }
  }

  /** Memory has each key's latest value, in the task as well as in a provider that loads the delta. */
  public static void manyLargeChangesOfOneKeyNeedLittleMemory(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.valueSchema = SparkRows.BYTES;
    byte[] value = new byte[200_000];
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      for (int number = 0; number < 6_000; number++) { // 1.2 GB in total; the JVM has a heap of 1 GB
        Arrays.fill(value, (byte) number);
        state.store.put(state.rows.key("a", 1), state.rows.bytes(value), State.FAMILY);
      }
      state.commit();
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(1);
      byte[] found = state.store.get(state.rows.key("a", 1), State.FAMILY).getBinary(0);
      Check.that(Arrays.equals(found, value), "the latest value is loaded");
      state.abort();
    }
  }

  /** After a change that could not be written, the delta is incomplete and the store cannot be committed. */
  public static void aStoreWhoseChangeFailedCannotBeCommitted(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", 1024);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      State state = partition.at(1);
      network.now(9999, request -> request.has("put", "delta/"), Network.REFUSED);
      Check.fails(CANNOT_COMMIT, () -> putRounds(state, 1, 20_000));
      network.now(Network.NONE);
      Check.says(Check.fails(() -> state.put("a", 1, 1)), "cannot put: a change failed");
      Check.says(Check.fails(() -> state.store.commit()), "cannot commit: a change failed");
      state.abort();
      partition.commitUpTo(2, 2);
      Check.equal(partition.content(2), Partition.expected(2));
    }
  }

  /** Cleanup removes the chunks of an aborted batch together with its version. */
  public static void theChunksOfAnAbortedBatchAreRemoved(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", 1024);
    query.conf("minBatchesToRetain", 1).conf("stateStore.minDeltasForSnapshot", 1);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      State state = partition.at(1);
      putRounds(state, 1, 3000);
      Check.that(stored.items(DELTA_2).size() >= 16, "chunks are written before the abort");
      state.abort();
      for (long version = 2; version <= 6; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
      }
      Check.equal(stored.items(DELTA_2), List.of());
      Check.equal(partition.content(6), Partition.expected(6));
    }
  }

  /**
   * While a batch runs again, maintenance takes a snapshot of the version of its first attempt. The values that the
   * batch has written so far stay readable, also after the next snapshot.
   */
  public static void aSnapshotDoesNotDropTheValuesOfARunningBatch(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", 1024);
    query.conf("stateStore.minDeltasForSnapshot", 1).conf("maxBatchesToRetainInMemory", 4);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 2);
      State state = partition.at(1);
      putRounds(state, 1, 200);
      partition.provider.doSnapshotMaintenance(); // of version 2
      state.commit();
      partition.commit(2, next -> next.put("k", 100, 0));
      partition.provider.doSnapshotMaintenance(); // of version 3
      Map<String, Integer> content = partition.content(2);
      Check.equal(content.size(), 202);
      Check.equal(content.get("k/100"), 100);
    }
  }

  private static List<List<Object>> feed(Partition partition, long first, long last) {
    SupportsFineGrainedReplay provider = (SupportsFineGrainedReplay) partition.provider;
    Option<String> uid = partition.query.idOf(partition.id, last);
    var changes = provider.getStateStoreChangeDataReader(first, last, Option.empty(), uid);
    List<List<Object>> feed = new ArrayList<>();
    while (changes.hasNext()) {
      var change = changes.next();
      UnsafeRow value = change._3();
      String kind = RecordType.getRecordTypeAsString(change._1());
      Integer number = value == null ? null : value.getInt(0);
      feed.add(Arrays.asList(change._4(), kind, SparkRows.name(change._2()), number));
    }
    changes.closeIfNeeded();
    return feed;
  }

  private static void apply(State state, JsonNode operation) {
    String name = operation.get(1).asText();
    if (operation.get(0).asText().equals("put")) {
      state.put(name, 0, operation.get(2).asInt());
    } else {
      state.remove(name, 0);
    }
  }

  private static void changeRandomly(State state, Random random) {
    for (int count = random.nextInt(60); count > 0; count--) {
      int number = random.nextInt(5);
      if (random.nextInt(3) == 0) {
        state.remove("k", number);
      } else {
        state.put("k", number, random.nextInt(4));
      }
    }
  }

  /** Puts keys several times; the value is 1000 times the round, plus the key's number. */
  private static void putRounds(State state, int rounds, int keys) {
    for (int round = 0; round < rounds; round++) {
      for (int number = 0; number < keys; number++) {
        state.put("k", number, round * 1000 + number);
      }
    }
  }
}
