package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The records of a partition in the table: when they are written and removed. */
final class MaintenanceCases {
  private static final String CANNOT_LOAD = "CANNOT_LOAD_STATE_STORE";

  private MaintenanceCases() {}

  /** Any provider: the retained versions stay loadable after any snapshots and removals. */
  public static void theRetainedVersionsStayLoadable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 3).conf("stateStore.minDeltasForSnapshot", 2);
    try (Partition partition = query.open()) {
      for (long version = 1; version <= 12; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doSnapshotMaintenance();
        partition.provider.doCleanupMaintenance();
        for (long retained = Math.max(0, version - 3); retained <= version; retained++) {
          Check.equal(partition.content(retained), Partition.expected(retained));
        }
      }
    }
    try (Partition partition = query.restarted().open()) {
      for (long retained = 9; retained <= 12; retained++) {
        Check.equal(partition.content(retained), Partition.expected(retained));
      }
      Check.fails(CANNOT_LOAD, () -> partition.at(2));
      partition.commitUpTo(13, 13);
      Check.equal(partition.content(13), Partition.expected(13));
    }
  }

  /** Any provider: a version loaded from a snapshot equals the version. */
  public static void aSnapshotChangesNothing(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 1);
    query.prefixes = true;
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("a", 2, 2).put("b", 1, 3));
      partition.commit(1, state -> state.remove("a", 1).put("c", 1, 4));
      partition.provider.doMaintenance();
      Check.equal(partition.content(2), Map.of("a/2", 2, "b/1", 3, "c/1", 4));
      State state = partition.at(2);
      Check.equal(state.named("a"), Map.of("a/2", 2));
      Check.equal(state.get("b", 1), 3);
      state.put("d", 1, 5).remove("b", 1).commit();
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/2", 2, "b/1", 3, "c/1", 4));
      Check.equal(partition.content(3), Map.of("a/2", 2, "c/1", 4, "d/1", 5));
    }
  }

  /** Any provider: open stores and iterators stay usable during maintenance. */
  public static void maintenanceDoesNotDisturbOpenStores(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 1).conf("stateStore.minDeltasForSnapshot", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 6);
      State state = partition.at(6).put("x", 1, 1);
      var iterator = partition.reading(6).iterator(State.FAMILY);
      iterator.next();
      partition.provider.doMaintenance();
      partition.provider.doMaintenance();
      Check.equal(State.content(iterator).size(), 6);
      Check.equal(state.get("a", 3), 3);
      state.commit();
      partition.provider.doMaintenance();
      Check.equal(partition.content(7).size(), 8);
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(7).size(), 8);
      Check.equal(partition.content(7).get("a/3"), 3);
    }
  }

  public static void nothingIsWrittenBeforeTheFirstUpdate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      Check.equal(state.get("a", 1), null);
      partition.reading(0).release();
      Check.equal(stored.items(""), List.of());
      state.abort();
      Check.equal(stored.items(""), List.of());
    }
  }

  public static void aCommitWritesAnnouncementDeltaAndManifest(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      JsonNode manifest = stored.value(stored.item("version/00000000000000000001"));
      Check.equal(manifest.get("records").asInt(), 2);
      Check.that(manifest.get("base").isNull(), "the first version builds on nothing");
      Check.equal(stored.item("version/").length(), query.format == 1 ? 28 : 28 + 37);
      String uid = manifest.get("uid").asText();
      Check.equal(stored.item("delta/"), "delta/00000000000000000001/" + uid + "/000000");
      Check.equal(stored.value("attempts/00000000000000000001").get("uids").get(0).asText(), uid);
      Check.equal(Stored.of(arguments, query.name).items(""), query.format == 1 ? List.of("query", "runs") : List.of("query"));
      partition.at(1).put("x", 1, 1).abort();
      Check.equal(stored.items("version/").size(), 1);
    }
  }

  public static void maintenanceMakesASnapshotWhenThereAreEnoughDeltas(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 3);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 2);
      partition.provider.doSnapshotMaintenance();
      Check.equal(stored.items("snapshot/"), List.of());
      partition.commitUpTo(3, 3);
      partition.provider.doSnapshotMaintenance();
      partition.provider.doSnapshotMaintenance();
      Check.equal(described(stored).size(), 1);
      partition.commitUpTo(4, 5);
      JsonNode manifest = stored.value(stored.item("version/00000000000000000005"));
      Check.equal(manifest.get("base").get("version").asInt(), 3);
      Check.equal(manifest.get("deltas").size(), 2);
    }
  }

  public static void aCommitMakesASnapshotItselfWhenMaintenanceDoesNot(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).setting("deltas_max", 4);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 11);
      Check.that(described(stored).size() >= 2, "there are snapshots: " + described(stored));
      for (String item : stored.items("version/")) {
        Check.that(stored.value(item).get("deltas").size() <= 4, "a version has at most so many deltas");
      }
    }
    try (Partition partition = query.restarted().open()) {
      for (long version = 1; version <= 11; version++) {
        Check.equal(partition.content(version), Partition.expected(version));
      }
    }
  }

  public static void aSnapshotThatIsForcedIsWrittenWithTheCommit(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      var uid = query.idOf(partition.id, 1);
      State state = new State(query, partition.provider.getStore(1, uid, true, false), uid);
      state.put("b", 1, 1).commit();
      Check.that(described(stored).get(0).startsWith("snapshot/00000000000000000002/"), "it is of version 2");
    }
  }

  public static void versionsNoLongerRetainedAreRemoved(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2).conf("stateStore.minDeltasForSnapshot", 2);
    Stored stored = Stored.of(arguments, query.place(0));
    int most = 0;
    try (Partition partition = query.open()) {
      for (long version = 1; version <= 40; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
        most = Math.max(most, stored.items("").size());
      }
      Check.that(most < 40, "the number of records does not grow with the versions: " + most);
      nothingIsBelow(stored, 34, 38);
      Check.says(Check.fails(CANNOT_LOAD, () -> partition.at(5)), "version 5");
    }
  }

  /** With `unloadOnCommit`, each batch uses a new provider, and maintenance runs before the provider is closed. */
  public static void maintenanceBetweenProvidersThatDoOneBatchEach(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2).conf("stateStore.minDeltasForSnapshot", 2);
    Stored stored = Stored.of(arguments, query.place(0));
    for (long version = 1; version <= 15; version++) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
      }
    }
    Check.that(stored.items("").size() < 25, "old versions are gone: " + stored.items("").size());
    try (Partition partition = query.open()) {
      Check.equal(partition.content(15), Partition.expected(15));
    }
  }

  public static void maintenanceWhereNoVersionIsKeptInMemory(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2).conf("stateStore.minDeltasForSnapshot", 2);
    query.conf("maxBatchesToRetainInMemory", 0);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Partition partition = query.open()) {
      for (long version = 1; version <= 15; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
      }
      Check.equal(partition.content(15), Partition.expected(15));
      Check.that(stored.items("").size() < 25, "old versions are gone: " + stored.items("").size());
    }
  }

  /** After a checkpoint's commit log is deleted, versions restart far below the earlier floor. */
  public static void restartedStateIsCleanedToo(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2).conf("stateStore.minDeltasForSnapshot", 2);
    Stored stored = Stored.of(arguments, query.place(0));
    for (int last : List.of(20, 10, 30)) {
      query.ids.clear();
      Query again = query.restarted();
      try (Partition partition = again.open()) {
        for (long version = 1; version <= last; version++) {
          partition.commitUpTo(version, version);
          partition.provider.doMaintenance();
        }
        Check.equal(partition.content(last), Partition.expected(last));
      }
      try (Partition partition = again.restarted().open()) {
        Check.equal(partition.content(last), Partition.expected(last));
        Check.equal(partition.content(last - 1), Partition.expected(last - 1));
      }
      nothingIsBelow(stored, last - 6, last - 2);
    }
    Check.that(stored.items("").size() < 40, "the number of records does not grow: " + stored.items("").size());
  }

  /** Spark runs both concurrently, in two threads. */
  public static void concurrentSnapshotCleanupAndCommits(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 1).conf("stateStore.minDeltasForSnapshot", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      var failed = new java.util.concurrent.ConcurrentLinkedQueue<Throwable>();
      var going = new java.util.concurrent.atomic.AtomicBoolean(true);
      List<Thread> threads =
          List.of(
              again(partition.provider::doSnapshotMaintenance, going, failed),
              again(partition.provider::doCleanupMaintenance, going, failed));
      for (long version = 2; version <= 30; version++) {
        partition.commitUpTo(version, version);
        Check.equal(partition.content(version), Partition.expected(version));
        Check.equal(partition.content(version - 1), Partition.expected(version - 1));
      }
      going.set(false);
      for (Thread thread : threads) {
        thread.join();
      }
      Check.equal(failed.stream().map(Throwable::toString).collect(Collectors.toList()), List.of());
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(30), Partition.expected(30));
      Check.equal(partition.content(29), Partition.expected(29));
    }
  }

  public static void theCodecMayChange(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    int version = 0;
    for (String codec : List.of("lz4", "zstd", "snappy", "lzf")) {
      Query again = query.restarted().conf("stateStore.compression.codec", codec);
      again.conf("stateStore.minDeltasForSnapshot", 3);
      try (Partition partition = again.open()) {
        partition.commitUpTo(version + 1, version + 2);
        version += 2;
        Check.equal(partition.content(version), Partition.expected(version));
        partition.provider.doSnapshotMaintenance();
      }
    }
    try (Partition partition = query.restarted().open()) {
      for (long each = 1; each <= version; each++) {
        Check.equal(partition.content(each), Partition.expected(each));
      }
    }
  }

  /** A checkpoint may change from format 1 to format 2. Versions without an identity are found without one. */
  public static void aCheckpointMayChangeToFormat2(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.restarted(1).open()) {
      partition.commitUpTo(1, 2);
    }
    try (Partition partition = query.restarted(2).open()) {
      Check.equal(partition.content(2), Partition.expected(2));
      State state = partition.at(2).put("a", 3, 3).put("total", 0, 3);
      Check.equal(state.store.commit(), 3L);
      Check.that(state.id().isDefined(), "the new version has an identity");
      Check.equal(partition.content(3, state.id()), Partition.expected(3));
    }
  }

  private static Thread again(
      Runnable work, java.util.concurrent.atomic.AtomicBoolean going, java.util.Queue<Throwable> failed) {
    Thread thread =
        new Thread(
            () -> {
              try {
                while (going.get()) {
                  work.run();
                }
              } catch (Throwable error) {
                failed.add(error);
              }
            });
    thread.start();
    return thread;
  }

  /** Checks that the floor is within these limits and that no record below it remains. */
  private static void nothingIsBelow(Stored stored, long lowest, long highest) {
    long floor = stored.value("floor").get("version").asLong();
    Check.that(floor >= lowest && floor <= highest, "the floor follows: " + floor);
    String below = String.format("%020d", floor);
    for (String item : stored.items("")) {
      String[] parts = item.split("/");
      Check.that(parts.length == 1 || parts[1].compareTo(below) >= 0, item + " is not below the floor " + floor);
    }
  }

  /** The items that describe complete snapshots. */
  private static List<String> described(Stored stored) {
    return stored.items("snapshot/").stream().filter(item -> item.split("/").length == 3).collect(Collectors.toList());
  }

  /** A copy of a checkpoint neither writes nor removes, and is refused as a copy if its version is not retained. */
  public static void aCopyOfACheckpointChangesNothing(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 1).conf("stateStore.minDeltasForSnapshot", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 4);
      partition.provider.doSnapshotMaintenance();
      partition.commitUpTo(5, 6);
    }
    Stored stored = Stored.of(arguments, query.place(0));
    List<String> before = stored.items("");
    try (Partition partition = query.copied().open()) {
      Check.equal(partition.content(6), Partition.expected(6));
      partition.provider.doMaintenance();
      Check.says(Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.at(6)), "is a copy of");
      Check.equal(stored.items(""), before);
    }
    try (Partition partition = query.restarted().open()) {
      partition.content(6);
      partition.provider.doMaintenance();
    }
    try (Partition partition = query.copied().open()) {
      Check.says(Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.reading(1)), "is a copy of");
    }
  }
}
