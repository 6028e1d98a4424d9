package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;

/** What is kept in memory and what is asked of the table: seen by what goes over the network. */
final class MemoryCases {
  private static final String DELTAS = "delta/";

  private MemoryCases() {}

  public static void twoVersionsAreKeptInMemory(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("maxBatchesToRetainInMemory", 2);
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

  public static void oneVersionIsKeptInMemory(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("maxBatchesToRetainInMemory", 1);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      network.forget();
      partition.at(3).abort();
      Check.equal(network.items("get", DELTAS), List.of());
      partition.at(2).abort();
      Check.that(!network.items("get", DELTAS).isEmpty(), "an older version is read from the table");
    }
  }

  public static void noVersionIsKeptInMemory(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("maxBatchesToRetainInMemory", 0);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 2);
      network.forget();
      Check.equal(partition.at(2).get("a", 2), 2);
      Check.that(network.items("get", DELTAS).size() >= 2, "all of it is read from the table");
    }
  }

  /** Of what has been committed by others only the difference is read. */
  public static void onlyTheDeltasThatAreNewAreRead(JsonNode told) throws Exception {
    Query query = Query.of(told);
    try (Network network = Network.before(query); Partition first = query.open(); Partition second = query.open()) {
      first.commitUpTo(1, 5);
      Check.equal(second.content(5), Partition.expected(5));
      first.commitUpTo(6, 7);
      network.forget();
      second.at(7).abort();
      List<String> read = network.items("get", DELTAS);
      Check.equal(read.size(), 2);
      Check.that(read.stream().noneMatch(item -> item.startsWith("delta/00000000000000000005")), "the rest is there");
      Check.equal(second.content(7), Partition.expected(7));
    }
  }

  /** The store that is read and the one that is written, of one task, are loaded once. */
  public static void theReadAndTheWriteHalfOfATaskLoadOnce(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("maxBatchesToRetainInMemory", 0);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      network.forget();
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

  /** A snapshot and the deltas after it are read, not what came before. */
  public static void aLoadBeginsWithTheSnapshot(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("stateStore.minDeltasForSnapshot", 3);
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

  /** With bounded memory a value that is not there is fetched, and keys without a value never are. */
  public static void absentKeysAreNotAskedFor(JsonNode told) throws Exception {
    Query query = Query.of(told);
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
        Check.equal(!network.items("get", DELTAS).isEmpty(), bounded);
        state.abort();
      }
    }
  }

  /** With bounded memory values are fetched while they are iterated; what is away then is an error, not a gap. */
  public static void valuesThatCannotBeFetchedAreAnError(JsonNode told) throws Exception {
    Query query = Query.of(told).setting("memory", "bounded").setting("memory_records_max", 1);
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

  /** Snapshots move values; what is opened before that, of this version and the one before, stays the same. */
  public static void valuesAreFoundWhereASnapshotHasPutThem(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("stateStore.minDeltasForSnapshot", 1).conf("minBatchesToRetain", 1);
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

  /** How values are kept in memory is nothing that the table knows of. */
  public static void theWayOfKeepingValuesMayChange(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("stateStore.minDeltasForSnapshot", 2);
    for (int version = 1; version <= 6; version++) {
      Query again = query.restarted().setting("memory", version % 2 == 0 ? "all" : "bounded");
      try (Partition partition = again.open()) {
        partition.commitUpTo(version, version);
        Check.equal(partition.content(version), Partition.expected(version));
        partition.provider.doMaintenance();
      }
    }
  }
}
