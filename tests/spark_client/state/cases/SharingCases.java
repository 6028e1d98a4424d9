package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Any provider: concurrent partitions, stores and queries, and values of all sizes. */
final class SharingCases {
  private static final int PARTITIONS = 24;
  private static final int THREADS = 8;

  private SharingCases() {}

  public static void queriesWithEqualIdsAreIsolated(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Query other = Query.of(arguments);
    try (Partition one = query.open(); Partition two = other.open()) {
      one.commit(0, state -> state.put("a", 1, 1));
      Check.fails("CANNOT_LOAD_STATE_STORE", () -> two.at(1));
      two.commit(0, state -> state.put("b", 1, 2));
      one.commit(1, state -> state.put("a", 2, 1));
      two.commit(1, state -> state.remove("b", 1));
    }
    try (Partition one = query.restarted().open(); Partition two = other.restarted().open()) {
      Check.equal(one.content(2), Map.of("a/1", 1, "a/2", 1));
      Check.equal(two.content(2), Map.of());
    }
  }

  /** A join has four stores in each partition. */
  public static void operatorsPartitionsAndStoresAreIsolated(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    List<Partition> all = new ArrayList<>();
    for (String store : List.of("default", "left-keyToNumValues", "right-keyWithIndexToValue")) {
      for (long operator = 0; operator < 2; operator++) {
        for (int partition = 0; partition < 2; partition++) {
          all.add(Partition.open(query, query.storeId(operator, partition, store)));
        }
      }
    }
    for (int number = 0; number < all.size(); number++) {
      int own = number;
      all.get(number).commit(0, state -> state.put("own", own, own).put("all", 0, own));
    }
    for (int number = 0; number < all.size(); number++) {
      all.get(number).close();
      try (Partition again = Partition.open(query.restarted(), all.get(number).id)) {
        Check.equal(again.content(1), Map.of("own/" + number, number, "all/0", number));
      }
    }
  }

  public static void manyPartitionsAtOnce(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2).conf("minBatchesToRetain", 2);
    inThreads(number -> versions(query, number, 1, 3));
    Query again = query.restarted();
    inThreads(number -> versions(again, number, 4, 5));
  }

  /** Several tasks open the store of one partition concurrently, as for a plan that reads it twice. */
  public static void oneProviderInManyThreads(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("maxBatchesToRetainInMemory", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 6);
    }
    try (Partition partition = query.restarted().open()) {
      inThreads(
          number -> {
            long version = 1 + number % 6;
            Check.equal(partition.content(version), Partition.expected(version));
            return null;
          });
    }
  }

  public static void valuesOfAnySize(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.valueSchema = SparkRows.BYTES;
    int[] sizes = {0, 1, 7, 1_000, 100_000, 262_144, 450_000, 1_500_000, 5_000_000};
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      for (int size : sizes) {
        put(state, "random", size, random(size));
        put(state, "zeros", size, new byte[size]);
      }
      state.commit();
      hasAll(partition, 1, sizes);
      partition.commit(1, changed -> put(changed, "random", 1, random(2)));
      partition.provider.doMaintenance();
    }
    try (Partition partition = query.restarted().conf("stateStore.minDeltasForSnapshot", 1).open()) {
      hasAll(partition, 1, sizes);
      partition.at(2).abort();
      partition.provider.doSnapshotMaintenance();
      partition.commit(2, changed -> put(changed, "random", 1, random(1)));
    }
    try (Partition partition = query.restarted().open()) {
      hasAll(partition, 3, sizes);
    }
  }

  public static void keysOfAnyKind(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    List<String> names = List.of("", " ", "ü", "日本語", "a/b", "\"", "\u0000", "\uD83D\uDE00", "x".repeat(100_000));
    try (Partition partition = query.open()) {
      partition.commit(0, state -> names.forEach(name -> state.put(name, Integer.MIN_VALUE, 1).put(name, -1, 2)));
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(1);
      for (String name : names) {
        Check.equal(state.get(name, Integer.MIN_VALUE), 1);
        Check.equal(state.get(name, -1), 2);
      }
      Check.equal(state.content().size(), 2 * names.size());
      names.forEach(name -> state.remove(name, -1));
      state.commit();
      Check.equal(partition.content(2).size(), names.size());
    }
  }

  private static Void versions(Query query, int number, long from, long last) {
    try (Partition partition = query.open(number)) {
      for (long version = from; version <= last; version++) {
        partition.commitUpTo(version, version);
        partition.provider.doMaintenance();
      }
      Check.equal(partition.content(last), Partition.expected(last));
      return null;
    }
  }

  private interface OfOne {
    Void run(int number) throws Exception;
  }

  private static void inThreads(OfOne work) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    try {
      List<Callable<Void>> all = new ArrayList<>();
      for (int number = 0; number < PARTITIONS; number++) {
        int own = number;
        all.add(() -> work.run(own));
      }
      for (Future<Void> each : threads.invokeAll(all)) {
        each.get();
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static void put(State state, String name, int size, byte[] value) {
    state.store.put(state.rows.key(name, size), state.rows.bytes(value), State.FAMILY);
  }

  private static void hasAll(Partition partition, long version, int[] sizes) {
    State state = partition.at(version);
    for (int size : sizes) {
      byte[] found = state.store.get(state.rows.key("random", size), State.FAMILY).getBinary(0);
      Check.that(java.util.Arrays.equals(found, random(size)), size + " random bytes are as they were");
      found = state.store.get(state.rows.key("zeros", size), State.FAMILY).getBinary(0);
      Check.that(java.util.Arrays.equals(found, new byte[size]), size + " zeros are as they were");
    }
    state.abort();
  }

  private static byte[] random(int size) {
    byte[] bytes = new byte[size];
    new java.util.Random(size).nextBytes(bytes);
    return bytes;
  }
}
