package tableside.state;

import java.lang.reflect.Constructor;
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
import tableside.state.http.StoreCounters;

/** The metrics that Spark shows for a store in its interface and in the query's progress, summed over partitions. */
final class SparkMetrics {
  private static final long NS_PER_MS = 1_000_000;
  private static final Map<StateStoreCustomMetric, Function<StoreCounters, Long>> READERS = new LinkedHashMap<>();

  static {
    sum("tablesideRequests", "requests to Tableside", counters -> counters.requests);
    sum("tablesideRetries", "requests to Tableside that were retries", counters -> counters.retries);
    sum("tablesideChunksWritten", "chunks of state written", counters -> counters.chunksWritten);
    sum("tablesideChunksRead", "chunks of state read", counters -> counters.chunksRead);
    sum("tablesideCacheHits", "values found in memory, if memory is bounded", counters -> counters.cacheHits);
    sum("tablesideDiskHits", "values found on the local disk, if memory is bounded", counters -> counters.diskHits);
    sum("tablesideCacheMisses", "values read from the table, if memory is bounded", counters -> counters.cacheMisses);
    sum("tablesideSnapshots", "snapshots written", counters -> counters.snapshots);
    sum("tablesideForceSnapshotCount", "snapshots that Spark forced", counters -> counters.forcedSnapshots);
    size("tablesideBytesSent", "bytes sent to Tableside", counters -> counters.sentBytes);
    size("tablesideBytesReceived", "bytes received from Tableside", counters -> counters.receivedBytes);
    timing("tablesideWaitMs", "time spent waiting for Tableside", counters -> counters.waitNs);
    timing("tablesideLoadMs", "time to load versions of the state", counters -> counters.loadNs);
    timing("tablesideCommitMs", "time to commit versions of the state", counters -> counters.commitNs);
  }

  private SparkMetrics() {}

  static Seq<StateStoreCustomMetric> supported() {
    return CollectionConverters.asScala(READERS.keySet()).toSeq();
  }

  /** Returns the counts since the last call, including those of maintenance, and resets them. */
  static StateStoreMetrics drain(StoreCounters counters, long records, long memoryBytes) {
    Map<StateStoreCustomMetric, Object> values = new LinkedHashMap<>();
    READERS.forEach((metric, value) -> values.put(metric, value.apply(counters)));
    return new StateStoreMetrics(
        records, memoryBytes, scala.collection.immutable.Map.from(CollectionConverters.asScala(values)),
        Map$.MODULE$.empty());
  }

  private static void sum(String name, String description, Function<StoreCounters, LongAdder> counter) {
    READERS.put(new StateStoreCustomSumMetric(name, description), counter.andThen(LongAdder::sumThenReset));
  }

  private static void size(String name, String description, Function<StoreCounters, LongAdder> counter) {
    READERS.put(sizeMetric(name, description), counter.andThen(LongAdder::sumThenReset));
  }

  /** The constructor has a third parameter since Spark 4.3. */
  private static StateStoreCustomMetric sizeMetric(String name, String description) {
    try {
      Constructor<?> constructor = StateStoreCustomSizeMetric.class.getConstructors()[0];
      boolean hasFlag = constructor.getParameterCount() == 3;
      return (StateStoreCustomMetric)
          (hasFlag ? constructor.newInstance(name, description, false) : constructor.newInstance(name, description));
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void timing(String name, String description, Function<StoreCounters, LongAdder> counter) {
    READERS.put(
        new StateStoreCustomTimingMetric(name, description),
        counters -> counter.apply(counters).sumThenReset() / NS_PER_MS);
  }
}
