package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import scala.Option;

/** Interrupted operations, and concurrent ones. */
final class CutOffCases {
  private static final int ATTEMPTS = 8;

  private CutOffCases() {}

  /** Each version has been attempted twice. Cleanup is interrupted after one request, then after two, and so on. */
  public static void interruptedCleanupResumes(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 1).conf("stateStore.minDeltasForSnapshot", 1);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        for (long version = 1; version <= 6; version++) {
          partition.at(version - 1).put("abandoned", 1, 1).commitQuietly();
          partition.commitUpTo(version, version);
          partition.provider.doSnapshotMaintenance();
        }
      }
      for (int passed = 1; passed <= 9; passed++) {
        try (Partition partition = query.restarted().open()) {
          Check.equal(partition.content(6), Partition.expected(6));
          AtomicInteger left = new AtomicInteger(passed);
          network.now((request, way) -> left.getAndDecrement() > 0 ? way.pass() : Network.REFUSED.meet(request, way));
          partition.provider.doCleanupMaintenance();
          network.now(Network.NONE);
          Check.equal(partition.content(5), Partition.expected(5));
        }
      }
      try (Partition partition = query.restarted().open()) {
        Check.equal(partition.content(6), Partition.expected(6));
        partition.provider.doCleanupMaintenance();
      }
      String floor = String.format("%020d", stored.value("floor").get("version").asLong());
      Check.that(floor.compareTo("00000000000000000003") >= 0, "old versions are gone: " + floor);
      for (String item : stored.items("")) {
        Check.that(item.equals("floor") || item.split("/")[1].compareTo(floor) >= 0, item + " is not below " + floor);
      }
    }
    try (Partition partition = query.restarted().setting("url", arguments.at("/settings/url").asText()).open()) {
      Check.equal(partition.content(5), Partition.expected(5));
      Check.equal(partition.content(6), Partition.expected(6));
    }
  }

  /** Chunks of a snapshot without a description are ignored, and removed with their version. */
  public static void anIncompleteSnapshotIsNotUsed(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2).conf("minBatchesToRetain", 1);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 3);
        network.now((request, way) ->
            request.items("put").stream().anyMatch(item -> item.split("/").length == 3 && item.startsWith("snapshot/"))
                ? Network.REFUSED.meet(request, way)
                : way.pass());
        partition.provider.doSnapshotMaintenance();
        network.now(Network.NONE);
        String half = stored.item("snapshot/");
        Check.equal(half.split("/").length, 4);
        partition.commitUpTo(4, 4);
        Check.that(stored.value(stored.item("version/00000000000000000004")).get("base").isNull(), "it is not used");
        for (long version = 5; version <= 12; version++) {
          partition.provider.doMaintenance();
          partition.commitUpTo(version, version);
        }
        partition.provider.doMaintenance();
        Check.that(!stored.items("snapshot/").contains(half), "it is removed: " + half);
        Check.equal(partition.content(12), Partition.expected(12));
      }
    }
  }

  /** If several attempts commit one version concurrently, the last one prevails; with identities, each has its own. */
  public static void concurrentAttemptsAtOneVersion(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      LocalSpark.inTask(0, () -> partition.commit(0, state -> state.put("a", 1, 1)));
    }
    for (int round = 0; round < 3; round++) {
      Map<Integer, Option<String>> ids = atOnce(query.restarted());
      try (Partition partition = query.restarted().open()) {
        for (int attempt = query.format == 1 ? ATTEMPTS : 1; attempt <= ATTEMPTS; attempt++) {
          Check.that(ids.containsKey(attempt), "it has committed: attempt " + attempt + " in " + ids.keySet());
          Check.equal(partition.content(2, ids.get(attempt)), Map.of("a/1", 1, "attempt/0", attempt));
        }
      }
    }
  }

  /** Repartitioning of state needs a version that starts empty, regardless of earlier versions. */
  public static void aVersionMayStartEmpty(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      Option<String> uid = query.idOf(partition.id, 3);
      State state = new State(query, partition.provider.getStore(3, uid, true, true), uid);
      Check.equal(state.content(), Map.of());
      state.put("new", 1, 1).commit();
      Check.equal(partition.content(4), Map.of("new/1", 1));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(4), Map.of("new/1", 1));
      Check.equal(partition.content(3), Partition.expected(3));
    }
  }

  /** Spark may close a provider that it assigns elsewhere while a task still writes to it. */
  public static void aProviderIsClosedWhileATaskWrites(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Partition partition = query.open();
    partition.commitUpTo(1, 2);
    State state = partition.at(2).put("a", 3, 3);
    partition.close();
    Check.equal(state.get("a", 1), 1);
    state.put("total", 0, 3).commit();
    try (Partition again = query.restarted().open()) {
      Check.equal(again.content(3), Partition.expected(3));
    }
  }

  private static Map<Integer, Option<String>> atOnce(Query query) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(ATTEMPTS);
    Map<Integer, Option<String>> committed = new java.util.concurrent.ConcurrentHashMap<>();
    try {
      List<Callable<Void>> all = new ArrayList<>();
      for (int number = 1; number <= ATTEMPTS; number++) {
        int attempt = number;
        all.add(() -> LocalSpark.inTask(attempt, () -> attempted(query, attempt, committed)));
      }
      for (Future<Void> each : threads.invokeAll(all)) {
        each.get();
      }
    } finally {
      threads.shutdownNow();
    }
    return committed;
  }

  private static Void attempted(Query query, int attempt, Map<Integer, Option<String>> committed) {
    try (Partition partition = query.open()) {
      State state = partition.at(1).put("attempt", 0, attempt);
      try {
        state.store.commit();
        committed.put(attempt, state.id());
      } catch (Exception late) {
        Check.says(late, "later attempt");
        state.store.abort();
      }
    }
    return null;
  }
}
