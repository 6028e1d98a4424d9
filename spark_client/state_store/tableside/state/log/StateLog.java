package tableside.state.log;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;
import tableside.state.http.Key;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;
import tableside.state.http.Settings;
import tableside.state.http.StoreCounters;
import tableside.state.http.Table;

/**
 * The records of one store's versions in the table. {@link StoreKeys}, {@link Manifest} and {@link Lineage} define
 * their layout. Every operation may be repeated after a failure.
 *
 * @param codecName the codec for writing; everything that is read names the codec it was written with
 */
public record StateLog(Table table, Settings settings, StoreKeys keys, String codecName, StoreCounters counters) {
  public Manifests manifests() {
    return new Manifests(this);
  }

  public AttemptLog attempts() {
    return new AttemptLog(this);
  }

  /** Describes the versions and snapshots in the table, for a message. */
  public String retained() throws IOException, InterruptedException {
    return RetainedVersions.read(this).toString();
  }

  CompressionCodec codec(String name) {
    return CompressionCodec$.MODULE$.createCodec(sparkConf(), name);
  }

  /** The configuration of this executor, or Spark's defaults outside an executor. */
  public static SparkConf sparkConf() {
    return SparkEnv.get() == null ? new SparkConf(false) : SparkEnv.get().conf();
  }

  public ChunkReader delta(Lineage.Delta delta) {
    return new ChunkReader(this, StoreKeys.deltaChunks(delta.version(), delta.uid()), delta.chunks(), delta.codec());
  }

  public ChunkReader snapshot(Lineage.Base base) {
    String chunks = StoreKeys.snapshotChunks(base.version(), base.snapshot());
    return new ChunkReader(this, chunks, base.chunks(), base.codec());
  }

  List<Outcome> apply(List<Operation> operations) throws IOException, InterruptedException {
    return table.apply(operations, counters);
  }

  /** Reads the records of these keys in order, or only some of their members. */
  List<Outcome> get(List<Key> records, String... fields) throws IOException, InterruptedException {
    List<String> wanted = fields.length == 0 ? null : List.of(fields);
    return apply(records.stream().<Operation>map(key -> new Operation.Get(key, wanted)).toList());
  }

  Outcome get(Key key, String... fields) throws IOException, InterruptedException {
    return get(List.of(key), fields).get(0);
  }

  /** The lowest version that may be in the table. */
  long floor() throws IOException, InterruptedException {
    Outcome floor = get(keys.floor());
    return floor.absent() ? 1 : floor.value().path("version").asLong(1);
  }

  Outcome applyOne(Operation operation) throws IOException, InterruptedException {
    return apply(List.of(operation)).get(0);
  }

  CompletableFuture<List<Outcome>> applyAsync(List<Operation> operations) {
    return operations.isEmpty() ? CompletableFuture.completedFuture(List.of()) : table.applyAsync(operations, counters);
  }

  <T> T await(CompletableFuture<T> future) throws IOException, InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException error) {
      if (error.getCause() instanceof IOException cause) {
        cause.addSuppressed(new IOException("awaited here"));
        throw cause;
      }
      throw new IllegalStateException(error.getCause());
    } catch (InterruptedException error) {
      future.cancel(true);
      throw error;
    }
  }
}
