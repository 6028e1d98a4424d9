package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Failures between a store and its table: no data is lost, counted twice, or partially visible. */
final class FaultCases {
  private static final String CANNOT_COMMIT = "CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT";
  private static final String CANNOT_LOAD = "CANNOT_LOAD_STATE_STORE";
  private static final ObjectMapper JSON = new ObjectMapper();

  private FaultCases() {}

  public static void theResponseToAManifestIsLost(JsonNode arguments) throws Exception {
    commitsDespite(arguments, 1, request -> request.has("put", "version/"), Network.RESPONSE_LOST);
  }

  public static void theResponsesToChunksAreLost(JsonNode arguments) throws Exception {
    commitsDespite(arguments, 2, request -> request.has("put", "delta/"), Network.RESPONSE_LOST);
  }

  public static void theResponseToTheAnnouncementIsLost(JsonNode arguments) throws Exception {
    commitsDespite(arguments, 1, request -> request.has("update", "attempts/"), Network.RESPONSE_LOST);
  }

  public static void theRequestWithTheManifestIsLost(JsonNode arguments) throws Exception {
    commitsDespite(arguments, 1, request -> request.has("put", "version/"), Network.REQUEST_LOST);
  }

  public static void aManifestIsThrottledAndShed(JsonNode arguments) throws Exception {
    AtomicInteger count = new AtomicInteger();
    commitsDespite(
        arguments,
        2,
        request -> request.has("put", "version/"),
        (request, way) ->
            count.getAndIncrement() == 0
                ? Network.problem(429, "throttled", false)
                : Network.problem(503, "overloaded", false));
  }

  public static void theResponseToAManifestIsLate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      query.setting("timeout_s", 0.4);
      commitsDespite(
          query,
          network,
          1,
          request -> request.has("put", "version/"),
          (request, way) -> {
            Network.Response answer = way.pass();
            Thread.sleep(1000);
            return answer;
          });
    }
  }

  public static void aResponseIsNotJson(JsonNode arguments) throws Exception {
    commitsDespite(
        arguments,
        1,
        request -> request.has("put", "version/"),
        (request, way) -> new Network.Response(502, "text/html", "<html>Bad gateway</html>".getBytes()));
  }

  /** The first response to every request is lost, after the request was applied. */
  public static void everyFirstResponseIsLost(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      Set<JsonNode> lost = ConcurrentHashMap.newKeySet();  // requests of several threads alternate
      network.now((request, way) -> {
        Network.Response answer = way.pass();
        JsonNode operations = request.body().path("operations");
        return lost.add(operations) || !lost.remove(operations) ? null : answer;
      });
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 3);
        partition.provider.doSnapshotMaintenance();
      }
      try (Partition partition = query.restarted().open()) {
        Check.equal(partition.content(3), Partition.expected(3));
        Check.equal(partition.content(2), Partition.expected(2));
      }
    }
  }

  /** One operation of a batch is not applied and the others are: the service reports an error for that operation. */
  public static void oneChunkOfSeveralIsNotProcessed(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.setting("chunk_bytes_max", 1024);
    try (Network network = Network.before(query)) {
      AtomicInteger left = network.now(
          1,
          request -> request.items("put").stream().filter(item -> item.startsWith("delta/")).count() > 2,
          (request, way) -> withoutSecond(way.pass()));
      try (Partition partition = query.open()) {
        partition.commit(0, FaultCases::putMany);
      }
      Check.equal(left.get(), 0);
      Check.that(network.items("put", "delta/").size() > 3, "the one that was not processed is sent again");
      try (Partition partition = query.restarted().open()) {
        Check.equal(partition.content(1).size(), 2000);
      }
    }
  }

  public static void aCommitFailsCleanlyWhenTheServiceStaysUnavailable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      query.setting("deadline_s", 2).setting("timeout_s", 1);
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 2);
        State state = partition.at(2).put("x", 1, 1);
        network.now(Network.REQUEST_LOST);
        Throwable thrown = Check.fails(CANNOT_COMMIT, () -> state.store.commit());
        Check.says(thrown, query.settings.get("url"));
        Check.that(!state.store.hasCommitted(), "it has not committed");
        state.store.abort();
        network.now(Network.NONE);
        Check.fails(CANNOT_LOAD, () -> partition.at(3));
        Check.equal(partition.content(2), Partition.expected(2));
        partition.commitUpTo(3, 3);
        Check.equal(partition.content(3), Partition.expected(3));
      }
    }
  }

  /** Maintenance is postponed without an error, and done when the service recovers. */
  public static void maintenanceIsPostponedWhileTheServiceIsUnavailable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2).conf("minBatchesToRetain", 1);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Network network = Network.before(query)) {
      query.setting("deadline_s", 1).setting("timeout_s", 0.5);
      try (Partition partition = query.open()) {
        for (int version = 2; version <= 6; version += 2) {
          partition.commitUpTo(version - 1, version);
          network.now(Network.REQUEST_LOST);
          partition.provider.doSnapshotMaintenance();
          partition.provider.doCleanupMaintenance();
          network.now(Network.NONE);
          partition.provider.doMaintenance();
          String snapshot = String.format("snapshot/%020d/", version);
          Check.that(!stored.items(snapshot).isEmpty(), "it is done the next time: " + snapshot);
        }
        Check.equal(stored.value("floor").get("version").asInt(), 4);
        Check.equal(partition.content(6), Partition.expected(6));
      }
    }
  }

  /** A version that cannot be read causes an error; it never seems absent or empty. */
  public static void loadingFailsCleanlyWhenTheServiceStaysUnavailable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      query.setting("deadline_s", 2).setting("timeout_s", 1);
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 2);
      }
      network.now(Network.REQUEST_LOST);
      try (Partition partition = query.restarted().open()) {
        Throwable thrown = Check.fails(CANNOT_LOAD, () -> partition.at(2));
        Check.says(thrown, query.settings.get("url"));
        network.now((request, way) -> Network.problem(503, "store_unavailable", false));
        Check.says(Check.fails(CANNOT_LOAD, () -> partition.at(2)), "store_unavailable");
        network.now(Network.NONE);
        Check.equal(partition.content(2), Partition.expected(2));
      }
    }
  }

  /** Chunks without a manifest are not a version. Another attempt writes it, and cleanup removes the leftovers. */
  public static void aHalfWrittenVersionIsInvisible(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.conf("minBatchesToRetain", 2);
    Stored stored = Stored.of(arguments, query.place(0));
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 1);
        network.now(99, request -> request.has("put", "version/"), Network.REFUSED);
        State state = partition.at(1);
        putMany(state);
        Check.fails(CANNOT_COMMIT, () -> state.store.commit());
        state.store.abort();
      }
      network.now(Network.NONE);
      List<String> half = stored.items("delta/00000000000000000002/");
      Check.that(!half.isEmpty(), "something was written");
      try (Partition partition = query.restarted().open()) {
        Check.fails(CANNOT_LOAD, () -> partition.at(2));
        partition.commitUpTo(2, 2);
        Check.equal(partition.content(2), Partition.expected(2));
        Check.that(stored.items("delta/").containsAll(half), "what is half written is still there");
        query.conf("stateStore.minDeltasForSnapshot", 2);
      }
      try (Partition partition = query.restarted().open()) {
        for (long version = 3; version <= 12; version++) {
          partition.commitUpTo(version, version);
          partition.provider.doMaintenance();
        }
        Check.that(Collections.disjoint(stored.items("delta/"), half), "what was half written has been removed");
        Check.equal(partition.content(12), Partition.expected(12));
      }
    }
  }

  /** Spark ends a task by interrupting it. */
  public static void anInterruptedCommitEndsAtOnce(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      query.setting("timeout_s", 60).setting("deadline_s", 60);
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 1);
        State state = partition.at(1).put("x", 1, 1);
        Thread task = Thread.currentThread();
        network.now(99, request -> request.has("put", "version/"), (request, way) -> {
          task.interrupt();
          Thread.sleep(3000);
          return null;
        });
        long begun = System.nanoTime();
        Throwable thrown = Check.fails(() -> state.store.commit());
        boolean interrupted = Thread.interrupted() || thrown instanceof InterruptedException;
        Check.that(System.nanoTime() - begun < 2_500_000_000L, "it ended before the answer would have come");
        Check.that(interrupted, "Spark sees that it was interrupted: " + thrown);
        state.store.abort();
        network.now(Network.NONE);
        partition.commitUpTo(2, 2);
        Check.equal(partition.content(2), Partition.expected(2));
      }
    }
  }

  /** The service is killed after it has the chunks and before it gets the manifest, and is then restarted. */
  public static void theServiceIsKilledInTheMiddleOfACommit(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    ProcessHandle service = ProcessHandle.of(arguments.get("pid").asLong()).orElseThrow();
    try (Network network = Network.before(query)) {
      query.setting("deadline_s", 60);
      AtomicInteger left = network.now(1, request -> request.has("put", "version/"), (request, way) -> {
        service.destroyForcibly();
        service.onExit().join();
        return null;
      });
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 2);
      }
      Check.equal(left.get(), 0);
    }
    try (Partition partition = query.restarted().setting("url", arguments.get("settings").get("url").asText()).open()) {
      Check.equal(partition.content(1), Partition.expected(1));
      Check.equal(partition.content(2), Partition.expected(2));
    }
  }

  private static void commitsDespite(
      JsonNode arguments, int times, java.util.function.Predicate<Network.Request> meant, Network.Fault fault)
      throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query)) {
      commitsDespite(query, network, times, meant, fault);
    }
  }

  private static void commitsDespite(
      Query query,
      Network network,
      int times,
      java.util.function.Predicate<Network.Request> meant,
      Network.Fault fault)
      throws Exception {
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 1);
      AtomicInteger left = network.now(times, meant, fault);
      partition.commitUpTo(2, 2);
      Check.equal(left.get(), 0);
      network.now(Network.NONE);
      partition.commitUpTo(3, 3);
      Check.equal(partition.content(3), Partition.expected(3));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Partition.expected(2));
      Check.equal(partition.content(3), Partition.expected(3));
    }
  }

  private static Network.Response withoutSecond(Network.Response answer) throws java.io.IOException {
    ObjectNode body = (ObjectNode) JSON.readTree(answer.body());
    ObjectNode problem = (ObjectNode) JSON.readTree(Network.problem(503, "store_unavailable", true).body());
    ObjectNode result = JSON.createObjectNode().put("status", 503);
    result.set("error", problem);
    ((com.fasterxml.jackson.databind.node.ArrayNode) body.get("results")).set(1, result);
    return new Network.Response(200, answer.type(), JSON.writeValueAsBytes(body));
  }

  private static void putMany(State state) {
    for (int number = 0; number < 2000; number++) {
      state.put("many", number, number * 7919);
    }
  }
}
