package tableside.state;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark shows of a store in its interface and in the query's progress, summed over the partitions. */
final class Metrics {
  private static final long NS_PER_MS = 1_000_000;
  private static final Map<StateStoreCustomMetric, Function<Meter, Long>> ALL = new LinkedHashMap<>();

  static {
    sum("tablesideRequests", "requests to Tableside", meter -> meter.calls);
    sum("tablesideRetries", "requests to Tableside that asked again", meter -> meter.retries);
    sum("tablesideChunksWritten", "chunks of state written", meter -> meter.chunksWritten);
    sum("tablesideChunksRead", "chunks of state read", meter -> meter.chunksRead);
    sum("tablesideCacheHits", "values found in memory, memory being bounded", meter -> meter.cacheHits);
    sum("tablesideDiskHits", "values found on the local disk, memory being bounded", meter -> meter.diskHits);
    sum("tablesideCacheMisses", "values read from the table, memory being bounded", meter -> meter.cacheMisses);
    sum("tablesideSnapshots", "snapshots written", meter -> meter.snapshots);
    size("tablesideBytesSent", "bytes sent to Tableside", meter -> meter.sentBytes);
    size("tablesideBytesReceived", "bytes received from Tableside", meter -> meter.receivedBytes);
    timing("tablesideWaitMs", "time spent waiting for Tableside", meter -> meter.waitedNs);
    timing("tablesideLoadMs", "time to load versions of the state", meter -> meter.loadedNs);
    timing("tablesideCommitMs", "time to commit versions of the state", meter -> meter.committedNs);
  }

  private Metrics() {}

  static Seq<StateStoreCustomMetric> supported() {
    return CollectionConverters.asScala(ALL.keySet()).toSeq();
  }

  /** What has been counted since this was last called, maintenance included. */
  static StateStoreMetrics taken(Meter meter, long records, long memoryBytes) {
    Map<StateStoreCustomMetric, Object> values = new LinkedHashMap<>();
    ALL.forEach((metric, value) -> values.put(metric, value.apply(meter)));
    return new StateStoreMetrics(
        records, memoryBytes, scala.collection.immutable.Map.from(CollectionConverters.asScala(values)),
        Map$.MODULE$.empty());
  }

  private static void sum(String name, String description, Function<Meter, LongAdder> counter) {
    ALL.put(new StateStoreCustomSumMetric(name, description), counter.andThen(LongAdder::sumThenReset));
  }

  private static void size(String name, String description, Function<Meter, LongAdder> counter) {
    ALL.put(new StateStoreCustomSizeMetric(name, description, false), counter.andThen(LongAdder::sumThenReset));
  }

  private static void timing(String name, String description, Function<Meter, LongAdder> counter) {
    ALL.put(
        new StateStoreCustomTimingMetric(name, description), meter -> counter.apply(meter).sumThenReset() / NS_PER_MS);
  }
}
