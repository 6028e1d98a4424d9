package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;

/**
 * Reads and writes the versions of one store's state as records of the table. {@link StoreKeys}, {@link Manifest} and
 * {@link Lineage} define their layout. Every method may be repeated after a failure.
 */
final class StateLog {
  private final Table table;
  private final Settings settings;
  private final StoreKeys keys;
  private final String codecName;
  private final StoreCounters counters;

  StateLog(Table table, Settings settings, StoreKeys keys, String codecName, StoreCounters counters) {
    this.table = table;
    this.settings = settings;
    this.keys = keys;
    this.codecName = codecName;
    this.counters = counters;
  }

  StoreKeys keys() {
    return keys;
  }

  Settings settings() {
    return settings;
  }

  StoreCounters counters() {
    return counters;
  }

  /** The codec for writing. Everything that is read names the codec it was written with. */
  String codecName() {
    return codecName;
  }

  CompressionCodec codec(String name) {
    return CompressionCodec$.MODULE$.createCodec(sparkConf(), name);
  }

  /** The configuration of this executor, or Spark's defaults outside an executor. */
  static SparkConf sparkConf() {
    return SparkEnv.get() == null ? new SparkConf(false) : SparkEnv.get().conf();
  }


  /** Reads the manifest of a version. @throws StateUnreadable if it is missing */
  Manifest manifest(long version, String uid) throws IOException, InterruptedException {
    Key key = keys.manifest(version, uid);
    Outcome outcome = applyOne(new Operation.Get(key, null));
    if (outcome.absent()) {
      throw new StateUnreadable(
          "version " + version + " is not in table " + settings.table() + ": " + key + " is missing"
              + missingReason(version));
    }
    return manifestOf(key, outcome);
  }

  /**
   * Reads the manifest of a snapshot's version, in either checkpoint format. @throws StateUnreadable if it is missing
   */
  Manifest manifestOf(Lineage.Base base) throws IOException, InterruptedException {
    Key shared = keys.manifest(base.version(), null);
    Outcome outcome = applyOne(new Operation.Get(shared, null));
    if (!outcome.absent()) {
      Manifest manifest = manifestOf(shared, outcome);
      if (manifest.uid().equals(base.uid())) {
        return manifest;
      }
    }
    return manifest(base.version(), base.uid());
  }

  /** Returns a snapshot of the version with this commit identity, or null if there is none. */
  Lineage.Base snapshotOf(long version, String uid) throws IOException, InterruptedException {
    Outcome attempts = applyOne(new Operation.Get(keys.attempts(version), null));
    if (attempts.absent()) {
      return null;
    }
    for (JsonNode name : attempts.value().path("snapshots")) {
      Outcome found = applyOne(new Operation.Get(keys.snapshot(version, name.asText()), null));
      if (!found.absent() && found.value().path("uid").asText().equals(uid)) {
        JsonNode json = found.value();
        return new Lineage.Base(version, uid, name.asText(), json.path("chunks").asInt(), json.path("codec").asText());
      }
    }
    return null;
  }

  ChunkReader delta(Lineage.Delta delta) {
    return new ChunkReader(this, StoreKeys.deltaChunks(delta.version(), delta.uid()), delta.chunks(), delta.codec());
  }

  ChunkReader snapshot(Lineage.Base base) {
    String chunks = StoreKeys.snapshotChunks(base.version(), base.snapshot());
    return new ChunkReader(this, chunks, base.chunks(), base.codec());
  }

  /** Reads several blocks together. @throws StateUnreadable if one is missing or damaged */
  Map<Integer, byte[]> blocks(Map<Integer, BlockIndex.Address> wanted) throws IOException, InterruptedException {
    Map<Integer, byte[]> found = new HashMap<>();
    Map<Integer, ByteArrayOutputStream> parts = new HashMap<>();
    Map<Integer, BlockIndex.Address> open = wanted;
    for (int part = 0; !open.isEmpty(); part++) {
      Map<Integer, BlockIndex.Address> unfinished = new HashMap<>();
      List<Operation> gets = new ArrayList<>();
      for (BlockIndex.Address address : open.values()) {
        gets.add(new Operation.Get(keys.chunk(address.chunks(), address.first() + part), null));
      }
      List<Outcome> outcomes = apply(gets);
      int index = 0;
      for (Map.Entry<Integer, BlockIndex.Address> entry : open.entrySet()) {
        Key key = gets.get(index).key();
        Outcome outcome = outcomes.get(index++);
        if (outcome.absent()) {
          throw new StateUnreadable(key + " is missing");
        }
        counters.chunksRead.increment();
        ByteArrayOutputStream data = parts.computeIfAbsent(entry.getKey(), number -> new ByteArrayOutputStream());
        data.writeBytes(ChunkReader.decodeData(outcome.value(), key));
        if (ChunkReader.hasMore(outcome.value())) {
          unfinished.put(entry.getKey(), entry.getValue());
        } else {
          found.put(entry.getKey(), decompressed(data.toByteArray(), entry.getValue(), key));
        }
      }
      open = unfinished;
    }
    return found;
  }


  /**
   * Announces an attempt before any of its other records is written, so that cleanup finds the records of failed
   * attempts.
   */
  CompletableFuture<List<Outcome>> announceCommit(long version, String uid) {
    return applyAsync(List.of(addToSet(keys.attempts(version), "uids", uid)));
  }

  CompletableFuture<List<Outcome>> announceSnapshot(long version, String snapshot) {
    return applyAsync(List.of(addToSet(keys.attempts(version), "snapshots", snapshot)));
  }

  ChunkWriter deltaWriter(long version, String uid, BlockIndex blocks) {
    return new ChunkWriter(this, version, StoreKeys.deltaChunks(version, uid), blocks);
  }

  ChunkWriter snapshotWriter(long version, String snapshot, BlockIndex blocks) {
    return new ChunkWriter(this, version, StoreKeys.snapshotChunks(version, snapshot), blocks);
  }

  /**
   * Publishes a completely written version in format v2. Its identity is part of the key, so that no other version
   * conflicts.
   */
  void publish(Manifest manifest) throws IOException, InterruptedException {
    Key key = keys.manifest(manifest.version(), manifest.uid());
    Outcome outcome = applyOne(new Operation.Put(key, manifest.toJson(), true, null));
    if (outcome.preconditionFailed()) {
      requireOwnManifest(key, manifest); // an earlier attempt at this put succeeded and its response was lost
    }
  }

  /**
   * Publishes a version in format v1, where attempts share one manifest. The first manifest is put if absent. A later
   * attempt replaces that of an earlier one, because Spark is running the batch again.
   *
   * @throws Superseded if the manifest is from a later attempt
   */
  void publishShared(Manifest manifest) throws IOException, InterruptedException {
    Key key = keys.manifest(manifest.version(), null);
    Outcome outcome = applyOne(new Operation.Put(key, manifest.toJson(), true, null));
    while (outcome.preconditionFailed()) {
      Outcome present = applyOne(new Operation.Get(key, null));
      if (present.absent()) {
        throw new StateUnreadable(key + " was removed during the commit");
      }
      Manifest other = manifestOf(key, present);
      if (other.uid().equals(manifest.uid())) {
        return;
      }
      if (!other.isOlderThan(manifest)) {
        throw new Superseded(
            "version " + manifest.version() + " of " + keys.prefix() + " was committed by a later attempt");
      }
      outcome = applyOne(new Operation.Put(key, manifest.toJson(), false, present.etag()));
    }
  }

  /** Publishes the description of a completely written snapshot. */
  void publishSnapshot(Lineage.Base base, long records, long bytes) throws IOException, InterruptedException {
    ObjectNode json = JsonNodeFactory.instance.objectNode();
    json.put("format", 1).put("version", base.version()).put("uid", base.uid()).put("chunks", base.chunks());
    json.put("codec", base.codec()).put("records", records).put("bytes", bytes).put("time", Manifest.now());
    applyOne(new Operation.Put(keys.snapshot(base.version(), base.snapshot()), json, true, null));
  }

  /** Registers the query and this store, so that they can be listed. */
  void register() throws IOException, InterruptedException {
    JsonNodeFactory json = JsonNodeFactory.instance;
    ObjectNode registration = json.objectNode();
    registration.putObject("$set").put(keys.query(), true);
    ObjectNode description = json.objectNode();
    description.putObject("$set").put("checkpoint", keys.checkpoint());
    String partitions = "operators." + keys.operator() + "." + keys.store() + ".partitions";
    description.putObject("$max").put(partitions, keys.partition() + 1);
    ObjectNode defaults = json.objectNode().put("created", Manifest.now());
    apply(
        List.of(
            new Operation.Update(keys.registration(), registration, json.objectNode(), false),
            new Operation.Update(keys.description(), description, defaults, false)));
  }

  /**
   * Resets the floor for a state that starts again under the same identity, and so with versions below the old floor.
   */
  void resetFloor() throws IOException, InterruptedException {
    if (!applyOne(new Operation.Get(keys.floor(), null)).absent()) {
      applyOne(new Operation.Put(keys.floor(), JsonNodeFactory.instance.objectNode().put("version", 1), false, null));
    }
  }


  List<Outcome> apply(List<Operation> operations) throws IOException, InterruptedException {
    return table.apply(operations, counters);
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

  private Operation addToSet(Key key, String list, String name) {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$addToSet").put(list, name);
    return new Operation.Update(key, update, JsonNodeFactory.instance.objectNode(), false);
  }

  private void requireOwnManifest(Key key, Manifest manifest) throws IOException, InterruptedException {
    Outcome present = applyOne(new Operation.Get(key, List.of("uid", "attempt", "time")));
    if (present.absent() || !present.value().path("uid").asText().equals(manifest.uid())) {
      throw new StateUnreadable(key + " exists with different content");
    }
  }

  private Manifest manifestOf(Key key, Outcome outcome) throws StateUnreadable {
    try {
      return Manifest.of(outcome.value());
    } catch (IllegalArgumentException error) {
      throw new StateUnreadable(key + " is damaged: " + error.getMessage(), error);
    }
  }

  private byte[] decompressed(byte[] data, BlockIndex.Address address, Key key) throws StateUnreadable {
    try {
      return Block.decompressed(data, codec(address.codec()));
    } catch (IOException | RuntimeException error) {
      throw new StateUnreadable(key + " is damaged: it cannot be decompressed", error);
    }
  }

  private String missingReason(long version) throws IOException, InterruptedException {
    Outcome floor = applyOne(new Operation.Get(keys.floor(), null));
    long lowest = floor.absent() ? 0 : floor.value().path("version").asLong();
    return version < lowest ? "; versions below " + lowest + " are no longer retained" : "";
  }
}
