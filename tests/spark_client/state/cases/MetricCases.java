package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Any provider: the metrics of its stores. */
final class MetricCases {
  private MetricCases() {}

  public static void keysAreCounted(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      Check.equal(partition.commit(0, state -> state.put("a", 1, 1).put("b", 1, 1).put("b", 1, 2)).keys(), 2L);
      Check.equal(partition.commit(1, state -> state.put("c", 1, 1).remove("a", 1).remove("x", 9)).keys(), 2L);
      Check.equal(partition.commit(2, state -> state.put("d", 1, 1)).keys(), 3L);
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.commit(3, state -> {}).keys(), 3L);
      Check.equal(partition.commit(4, state -> state.remove("d", 1)).keys(), 2L);
    }
  }

  public static void memoryGrowsWithData(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      long empty = partition.commit(0, state -> {}).store.metrics().memoryUsedBytes();
      State full =
          partition.commit(
              1,
              state -> {
                for (int number = 0; number < 20_000; number++) {
                  state.put("k", number, number);
                }
              });
      long bytes = full.store.metrics().memoryUsedBytes();
      Check.that(bytes > empty + 20_000 * 24, "20,000 keys take more than " + bytes + ", which was " + empty);
    }
  }

  /** Spark looks up each custom metric of a store in the provider's supported metrics. */
  public static void customMetricsAreThoseThatAreSupported(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      StateStoreMetrics metrics = partition.commit(0, state -> state.put("a", 1, 1)).store.metrics();
      List<StateStoreCustomMetric> supported =
          CollectionConverters.asJava(partition.provider.supportedCustomMetrics());
      Check.that(!supported.isEmpty(), "there are some");
      Set<StateStoreCustomMetric> shown = CollectionConverters.asJava(metrics.customMetrics()).keySet();
      Check.that(supported.containsAll(shown), "all reported metrics are supported: " + shown);
      Set<String> names = new HashSet<>();
      for (StateStoreCustomMetric metric : supported) {
        Check.that(names.add(metric.name()), "each name is there once: " + metric.name());
        Check.equal(metric.withNewDesc("another description").name(), metric.name());
        Check.that(metric.createSQLMetric(LocalSpark.context()) != null, "Spark can sum it up");
      }
    }
  }

  public static void metricsOfStoresAreSummedUp(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition one = query.open(0); Partition two = query.open(1)) {
      StateStoreMetrics first = one.commit(0, state -> state.put("a", 1, 1)).store.metrics();
      StateStoreMetrics second = two.commit(0, state -> state.put("a", 1, 1).put("b", 1, 1)).store.metrics();
      StateStoreMetrics both =
          StateStoreMetrics.combine(CollectionConverters.asScala(List.of(first, second)).toSeq());
      Check.equal(both.numKeys(), 3L);
      Check.equal(both.memoryUsedBytes(), first.memoryUsedBytes() + second.memoryUsedBytes());
      CollectionConverters.asJava(both.customMetrics()).forEach(
          (metric, value) -> {
            long sum = 0;
            for (StateStoreMetrics part : List.of(first, second)) {
              var found = part.customMetrics().get(metric);
              sum += found.isDefined() ? (Long) found.get() : 0;
            }
            Check.equal(value, sum);
          });
    }
  }

  /** Our provider: the metrics of a batch contain its requests once. */
  public static void metricsOfACommitAreReportedOnce(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 0)).store.metrics();
      network.forget();
      StateStoreMetrics metrics = partition.commit(1, state -> state.put("a", 1, 1)).store.metrics();
      Check.equal(value(metrics, "tablesideChunksWritten"), (long) network.items("put", "delta/").size());
      Check.that(value(metrics, "tablesideRequests") >= 2, "an announcement, chunks and a manifest are sent");
      Check.that(value(metrics, "tablesideBytesSent") > 0, "bytes are sent");
      Check.equal(value(metrics, "tablesideRetries"), 0L);
      network.now(1, request -> request.has("put", "version/"), Network.REQUEST_LOST);
      StateStoreMetrics again = partition.commit(2, state -> {}).store.metrics();
      Check.equal(network.items("put", "version/").size(), 3);
      Check.equal(value(again, "tablesideRetries"), 1L);
      try (Partition fresh = query.restarted().open()) {
        StateStoreMetrics read = fresh.commit(3, state -> {}).store.metrics();
        Check.that(value(read, "tablesideChunksRead") >= 2, "the state was read");
      }
    }
  }

  /** Spark forces a snapshot if snapshots lag behind. Its own providers have such a metric too. */
  public static void forcedSnapshotsHaveTheirOwnMetric(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    String name = query.ours() ? "tablesideForceSnapshotCount" : "forceSnapshotCount";
    try (Partition partition = query.open()) {
      State first = partition.commit(0, state -> state.put("a", 1, 1));
      Check.equal(value(first.store.metrics(), name), 0L);
      Option<String> uid = query.idOf(partition.id, 1);
      State forced = new State(query, partition.provider.getStore(1, uid, true, false), uid);
      forced.put("a", 1, 2).commit();
      Check.equal(value(forced.store.metrics(), name), 1L);
      Check.equal(value(partition.commit(2, state -> {}).store.metrics(), name), 0L);
    }
  }

  static long value(StateStoreMetrics metrics, String name) {
    for (var each : CollectionConverters.asJava(metrics.customMetrics()).entrySet()) {
      if (each.getKey().name().equals(name)) {
        return (Long) each.getValue();
      }
    }
    throw new AssertionError("there is no metric " + name);
  }

  /** Returns how many times the length of a long value the task allocates while it puts and commits the value. */
  public static double allocatedPerByteOfALongValue(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.valueSchema = SparkRows.BYTES;
    byte[] value = new byte[8 << 20];
    new java.util.Random(1).nextBytes(value);
    var threads = (com.sun.management.ThreadMXBean) java.lang.management.ManagementFactory.getThreadMXBean();
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      var row = state.rows.bytes(value);
      long before = threads.getCurrentThreadAllocatedBytes();
      state.store.put(state.rows.key("a", 1), row, State.FAMILY);
      state.commit();
      return (double) (threads.getCurrentThreadAllocatedBytes() - before) / value.length;
    }
  }
}
