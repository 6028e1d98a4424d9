package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Which data is in memory and which is read from the table, observed by requests. */
final class MemoryCases {
  private static final String DELTAS = "delta/";
  private static final int MANY = 3000;
  private static final int LEFT = 500;

  private MemoryCases() {}

  public static void twoVersionsAreKeptInMemory(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("maxBatchesToRetainInMemory", 2);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 4);
      network.forget();
      partition.at(4).abort();
      partition.at(3).abort();
      Check.equal(network.items("get", DELTAS), List.of());
      partition.at(2).abort();
      Check.that(!network.items("get", DELTAS).isEmpty(), "an older version is read from the table");
    }
  }

  public static void oneVersionIsKeptInMemory(JsonNode arguments) throws Exception {
    keepsOneVersion(Query.of(arguments).conf("maxBatchesToRetainInMemory", 1));
  }

  private static void keepsOneVersion(Query query) throws Exception {
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      network.forget();
      partition.at(3).abort();
      Check.equal(network.items("get", DELTAS), List.of());
      partition.at(2).abort();
      Check.that(!network.items("get", DELTAS).isEmpty(), "an older version is read from the table");
    }
  }

  /** With 0 or a negative number, one version is kept, because maintenance needs the newest. */
  public static void atLeastOneVersionIsKeptInMemory(JsonNode arguments) throws Exception {
    for (int kept : List.of(0, -1)) {
      Query query = Query.of(arguments).conf("maxBatchesToRetainInMemory", kept);
      keepsOneVersion(query);
    }
  }

  /** A provider reads only the deltas that it lacks. */
  public static void onlyNewDeltasAreRead(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query); Partition first = query.open(); Partition second = query.open()) {
      first.commitUpTo(1, 5);
      Check.equal(second.content(5), Partition.expected(5));
      first.commitUpTo(6, 7);
      network.forget();
      second.at(7).abort();
      List<String> read = network.items("get", DELTAS);
      Check.equal(read.size(), 2);
      Check.that(read.stream().noneMatch(item -> item.startsWith("delta/00000000000000000005")), "earlier deltas are in memory");
      Check.equal(second.content(7), Partition.expected(7));
    }
  }

  /** A task's read store and write store share one load. */
  public static void aTaskLoadsOnceForReadAndWrite(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 3);
      }
      network.forget();
      try (Partition partition = query.restarted().open()) {
        var reading = partition.reading(3);
        int once = network.items("get", DELTAS).size();
        Check.that(once > 0, "it is loaded");
        var uid = query.idOf(partition.id, 3);
        var store = partition.provider.upgradeReadStoreToWriteStore(reading, 3, uid, false);
        new State(query, store, uid).put("a", 4, 4).put("total", 0, 4).commit();
        Check.equal(network.items("get", DELTAS).size(), once);
        Check.equal(partition.content(4), Partition.expected(4));
      }
    }
  }

  /** A load reads the snapshot and the deltas after it. */
  public static void aLoadBeginsWithTheSnapshot(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 3);
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 4);
        partition.provider.doSnapshotMaintenance();
        partition.commitUpTo(5, 6);
      }
      network.forget();
      try (Partition partition = query.restarted().open()) {
        partition.at(6).abort();
        Check.equal(network.items("get", DELTAS).size(), 2);
        Check.equal(network.items("get", "snapshot/00000000000000000004/").size(), 1);
        Check.equal(partition.content(6), Partition.expected(6));
      }
    }
  }

  /** With bounded memory, a value that is not in memory is fetched. A get of an absent key sends no request. */
  public static void absentKeysCauseNoRequests(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 20);
      }
      try (Partition partition = query.restarted().open()) {
        State state = partition.at(20);
        network.forget();
        for (int number = 100; number < 200; number++) {
          Check.equal(state.get("a", number), null);
          Check.equal(state.get("absent", number), null);
        }
        Check.equal(network.items("get", ""), List.of());
        for (int number = 1; number <= 20; number++) {
          Check.equal(state.get("a", number), number);
        }
        boolean bounded = query.settings.get("memory").equals("bounded");
        if (!bounded || query.settings.get("disk_bytes_max").equals("0")) {
          Check.equal(!network.items("get", DELTAS).isEmpty(), bounded);
        }
        state.abort();
      }
    }
  }

  /** With bounded memory, iterators fetch values. A value that cannot be fetched is an error. */
  public static void valuesThatCannotBeFetchedAreAnError(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("memory", "bounded").setting("memory_records_max", 1).setting("disk_bytes_max", 0);
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 8);
      }
      try (Partition partition = query.restarted().open()) {
        State state = partition.at(8);
        network.now(Network.REFUSED);
        Check.fails(() -> state.content());
        Check.fails(() -> {
          for (int number = 1; number <= 8; number++) {
            state.get("a", number);
          }
        });
        network.now(Network.NONE);
        Check.equal(state.content(), Partition.expected(8));
        state.abort();
      }
    }
  }

  /** Snapshots relocate values. Stores and iterators opened before see the same data. */
  public static void valuesAreReadableAfterASnapshotRelocatesThem(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 1).conf("minBatchesToRetain", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 5);
      for (long version = 6; version <= 12; version++) {
        State older = partition.at(version - 2);
        State newer = partition.at(version - 1);
        var iterator = newer.iterator();
        iterator.next();
        partition.provider.doMaintenance();
        Check.equal(older.content(), Partition.expected(version - 2));
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
        Map<String, Integer> expected = Partition.expected(version - 1);
        Map<String, Integer> rest = State.content(iterator);
        Check.equal(rest.size(), expected.size() - 1);
        rest.forEach((key, value) -> Check.equal(value, expected.get(key)));
        Check.equal(newer.content(), expected);
        older.abort();
        newer.abort();
      }
      Check.equal(partition.content(12), Partition.expected(12));
      Check.equal(partition.content(11), Partition.expected(11));
    }
  }

  /** The version of the running commit has a compacted arena, separate from those that the snapshot relocates. */
  public static void aSnapshotDuringACommit(JsonNode arguments) throws Exception {
    Query query = bounded(arguments);
    try (Network network = Network.before(query)) {
      query.setting("timeout_s", 30);
      try (Partition partition = query.open()) {
        partition.commit(0, state -> putMany(state, "k", MANY));
        putOneEach(partition, 1, 10);
        CountDownLatch publishing = new CountDownLatch(1);
        CountDownLatch goOn = new CountDownLatch(1);
        network.now(1, request -> request.has("put", "version/"), (request, way) -> {
          publishing.countDown();
          goOn.await();
          return way.pass();
        });
        CompletableFuture<Void> commit = CompletableFuture.runAsync(() -> partition.commit(10, MemoryCases::removeMost));
        publishing.await();
        CompletableFuture<Void> snapshot = CompletableFuture.runAsync(partition.provider::doSnapshotMaintenance);
        whileUnpublished(network, snapshot);
        goOn.countDown();
        commit.get();
        snapshot.get();
        putOneEach(partition, 11, 16);
        partition.provider.doCleanupMaintenance();
        Check.equal(partition.content(16).get("k/" + (MANY - 1)), MANY - 1);
        Check.equal(partition.content(16).size(), LEFT + 1);
        putOneEach(partition, 16, 26);
        partition.provider.doSnapshotMaintenance();
      }
      try (Partition partition = query.restarted().open()) {
        Check.equal(partition.content(26).size(), LEFT + 1);
      }
    }
  }

  /** Another executor takes the partition, writes a snapshot, and removes older versions. */
  public static void aPartitionMovesAwayAndComesBack(JsonNode arguments) throws Exception {
    Query query = bounded(arguments);
    try (Partition first = query.open(); Partition second = query.open()) {
      first.commit(0, state -> putMany(state, "k", LEFT));
      putOneEach(first, 1, 12);
      second.at(12).abort();
      second.provider.doSnapshotMaintenance();
      putOneEach(second, 12, 13);
      for (long version = 13; version < 17; version++) {
        putOneEach(first, version, version + 1);
        first.provider.doCleanupMaintenance();
      }
      Check.equal(first.content(17).size(), LEFT + 1);
      try (Partition third = query.restarted().open()) {
        Check.equal(third.content(17).size(), LEFT + 1);
      }
    }
  }

  /** A snapshot is newer than the manifest of the reloaded version, and later versions build on it. */
  public static void aVersionThatIsLoadedAgainIsLoadedFromItsSnapshot(JsonNode arguments) throws Exception {
    Query query = bounded(arguments).conf("stateStore.minDeltasForSnapshot", 5).conf("maxBatchesToRetainInMemory", 2);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 5);
      partition.provider.doSnapshotMaintenance();
      Check.equal(partition.content(3), Partition.expected(3));
      partition.commitUpTo(6, 8);
      partition.provider.doCleanupMaintenance();
      Check.equal(partition.content(8), Partition.expected(8));
    }
  }

  /** After two later snapshots, a version is reloaded, because the addresses of its blocks were dropped. */
  public static void versionsOlderThanTwoSnapshotsAreStillRead(JsonNode arguments) throws Exception {
    Query query =
        bounded(arguments)
            .conf("stateStore.minDeltasForSnapshot", 1)
            .conf("maxBatchesToRetainInMemory", 4)
            .conf("minBatchesToRetain", 4);
    try (Partition partition = query.open()) {
      for (long version = 1; version <= 10; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
        for (long older = Math.max(1, version - 3); older <= version; older++) {
          Check.equal(partition.content(older), Partition.expected(older));
        }
      }
    }
  }

  /** The layout of the table does not depend on the `memory` setting. */
  public static void theMemorySettingMayChange(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2);
    for (int version = 1; version <= 6; version++) {
      Query again = query.restarted().setting("memory", version % 2 == 0 ? "all" : "bounded");
      try (Partition partition = again.open()) {
        partition.commitUpTo(version, version);
        Check.equal(partition.content(version), Partition.expected(version));
        partition.provider.doMaintenance();
      }
    }
  }

  /** Bounds memory to three values, so that nearly all values are in the table. */
  private static Query bounded(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2);
    return query.setting("memory", "bounded").setting("memory_records_max", 3).setting("disk_bytes_max", 0);
  }

  private static void putMany(State state, String name, int count) {
    for (int number = 0; number < count; number++) {
      state.put(name, number, number);
    }
  }

  /** Removes so many keys that the arena is compacted. */
  private static void removeMost(State state) {
    putMany(state, "gone", MANY);
    for (int number = 0; number < MANY; number++) {
      state.remove("gone", number);
    }
    for (int number = 0; number < MANY - LEFT; number++) {
      state.remove("k", number);
    }
  }

  /** Makes a commit on each of these versions. */
  private static void putOneEach(Partition partition, long from, long end) {
    for (long version = from; version < end; version++) {
      int number = (int) version;
      partition.commit(version, state -> state.put("x", 0, number));
    }
  }

  /** Waits until the snapshot is written, and then until it has relocated values or is blocked by the commit. */
  private static void whileUnpublished(Network network, CompletableFuture<Void> snapshot) throws Exception {
    for (int round = 0; round < 500 && network.items("put", "snapshot/").isEmpty(); round++) {
      Thread.sleep(20);
    }
    try {
      snapshot.get(500, TimeUnit.MILLISECONDS);
    } catch (TimeoutException waiting) {
      // the snapshot is blocked until the commit ends
    }
  }
}
