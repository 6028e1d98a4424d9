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
 * The versions of one store's state, as records of the table. Knows how they are laid out there (see {@link Place},
 * {@link Manifest}, {@link Lineage}), nothing of what the state means. Every method may be called again after it failed.
 */
final class StateLog {
  private final Table table;
  private final Settings settings;
  private final Place place;
  private final String codecName;
  private final Meter meter;

  StateLog(Table table, Settings settings, Place place, String codecName, Meter meter) {
    this.table = table;
    this.settings = settings;
    this.place = place;
    this.codecName = codecName;
    this.meter = meter;
  }

  Place place() {
    return place;
  }

  Settings settings() {
    return settings;
  }

  Meter meter() {
    return meter;
  }

  /** The codec of what is written; what is read says which it was written with. */
  String codecName() {
    return codecName;
  }

  CompressionCodec codec(String name) {
    return CompressionCodec$.MODULE$.createCodec(sparkConf(), name);
  }

  /** Of this executor; where there is none, Spark's defaults. */
  static SparkConf sparkConf() {
    return SparkEnv.get() == null ? new SparkConf(false) : SparkEnv.get().conf();
  }

  // ---- reading

  /** What a version is made of. @throws StateUnreadable if it is not there */
  Manifest manifest(long version, String uid) throws IOException, InterruptedException {
    Key key = place.manifest(version, uid);
    Outcome outcome = one(new Operation.Get(key, null));
    if (outcome.absent()) {
      throw new StateUnreadable(
          "version " + version + " is not in table " + settings.table() + ": " + key + " is missing" + whyMissing(version));
    }
    return manifestOf(key, outcome);
  }

  /** What a snapshot's version is made of, in whichever format it was committed. @throws StateUnreadable if it is not there */
  Manifest manifestOf(Lineage.Base base) throws IOException, InterruptedException {
    Key shared = place.manifest(base.version(), null);
    Outcome outcome = one(new Operation.Get(shared, null));
    if (!outcome.absent()) {
      Manifest manifest = manifestOf(shared, outcome);
      if (manifest.uid().equals(base.uid())) {
        return manifest;
      }
    }
    return manifest(base.version(), base.uid());
  }

  /** A snapshot of the version that this commit made, or null if there is none. */
  Lineage.Base snapshotOf(long version, String uid) throws IOException, InterruptedException {
    Outcome attempts = one(new Operation.Get(place.attempts(version), null));
    if (attempts.absent()) {
      return null;
    }
    for (JsonNode name : attempts.value().path("snapshots")) {
      Outcome found = one(new Operation.Get(place.snapshot(version, name.asText()), null));
      if (!found.absent() && found.value().path("uid").asText().equals(uid)) {
        JsonNode json = found.value();
        return new Lineage.Base(version, uid, name.asText(), json.path("chunks").asInt(), json.path("codec").asText());
      }
    }
    return null;
  }

  ChunkReader delta(Lineage.Delta delta) {
    return new ChunkReader(this, Place.deltaChunks(delta.version(), delta.uid()), delta.chunks(), delta.codec());
  }

  ChunkReader snapshot(Lineage.Base base) {
    return new ChunkReader(this, Place.snapshotChunks(base.version(), base.snapshot()), base.chunks(), base.codec());
  }

  /** Some blocks, asked for together. @throws StateUnreadable if one is missing or damaged */
  Map<Integer, byte[]> blocks(Map<Integer, Blocks.Address> wanted) throws IOException, InterruptedException {
    Map<Integer, byte[]> found = new HashMap<>();
    Map<Integer, ByteArrayOutputStream> parts = new HashMap<>();
    Map<Integer, Blocks.Address> open = wanted;
    for (int part = 0; !open.isEmpty(); part++) {
      Map<Integer, Blocks.Address> unfinished = new HashMap<>();
      List<Operation> gets = new ArrayList<>();
      for (Blocks.Address address : open.values()) {
        gets.add(new Operation.Get(place.chunk(address.chunks(), address.first() + part), null));
      }
      List<Outcome> outcomes = apply(gets);
      int index = 0;
      for (Map.Entry<Integer, Blocks.Address> entry : open.entrySet()) {
        Key key = gets.get(index).key();
        Outcome outcome = outcomes.get(index++);
        if (outcome.absent()) {
          throw new StateUnreadable(key + " is missing");
        }
        meter.chunksRead.increment();
        ByteArrayOutputStream data = parts.computeIfAbsent(entry.getKey(), number -> new ByteArrayOutputStream());
        data.writeBytes(ChunkReader.dataOf(outcome.value(), key));
        if (ChunkReader.goesOn(outcome.value())) {
          unfinished.put(entry.getKey(), entry.getValue());
        } else {
          found.put(entry.getKey(), decompressed(data.toByteArray(), entry.getValue(), key));
        }
      }
      open = unfinished;
    }
    return found;
  }

  // ---- writing

  /** Say that a version will be attempted, before anything of it is written: so cleaning finds what a failure leaves. */
  CompletableFuture<List<Outcome>> attempt(long version, String uid) {
    return begin(List.of(addTo(place.attempts(version), "uids", uid)));
  }

  CompletableFuture<List<Outcome>> attemptSnapshot(long version, String snapshot) {
    return begin(List.of(addTo(place.attempts(version), "snapshots", snapshot)));
  }

  ChunkWriter deltaWriter(long version, String uid, Blocks blocks) {
    return new ChunkWriter(this, version, Place.deltaChunks(version, uid), blocks);
  }

  ChunkWriter snapshotWriter(long version, String snapshot, Blocks blocks) {
    return new ChunkWriter(this, version, Place.snapshotChunks(version, snapshot), blocks);
  }

  /** Make a version visible that is written whole, in format v2: under its own identity, so nothing can be in its way. */
  void publish(Manifest manifest) throws IOException, InterruptedException {
    Key key = place.manifest(manifest.version(), manifest.uid());
    Outcome outcome = one(new Operation.Put(key, manifest.toJson(), true, null));
    if (outcome.refused()) {
      mine(key, manifest); // an answer was lost, and this is what it answered
    }
  }

  /**
   * Make a version visible in format v1, where attempts share one manifest: the first is put if absent; a later attempt
   * replaces an earlier one's, since its batch is being run again.
   *
   * @throws Superseded if the manifest is of a later attempt
   */
  void publishShared(Manifest manifest) throws IOException, InterruptedException {
    Key key = place.manifest(manifest.version(), null);
    Outcome outcome = one(new Operation.Put(key, manifest.toJson(), true, null));
    while (outcome.refused()) {
      Outcome present = one(new Operation.Get(key, null));
      if (present.absent()) {
        throw new StateUnreadable(key + " was removed while it was written");
      }
      Manifest other = manifestOf(key, present);
      if (other.uid().equals(manifest.uid())) {
        return;
      }
      if (!other.isOlderThan(manifest)) {
        throw new Superseded("version " + manifest.version() + " of " + place.path() + " was committed by a later attempt");
      }
      outcome = one(new Operation.Put(key, manifest.toJson(), false, present.etag()));
    }
  }

  /** Describe a snapshot that is written whole. */
  void publishSnapshot(Lineage.Base base, long records, long bytes) throws IOException, InterruptedException {
    ObjectNode json = JsonNodeFactory.instance.objectNode();
    json.put("format", 1).put("version", base.version()).put("uid", base.uid()).put("chunks", base.chunks());
    json.put("codec", base.codec()).put("records", records).put("bytes", bytes).put("time", Manifest.now());
    one(new Operation.Put(place.snapshot(base.version(), base.snapshot()), json, true, null));
  }

  /** Register the query and this store of it, so that they can be listed. */
  void register() throws IOException, InterruptedException {
    JsonNodeFactory json = JsonNodeFactory.instance;
    ObjectNode named = json.objectNode();
    named.putObject("$set").put(place.query(), true);
    ObjectNode described = json.objectNode();
    described.putObject("$set").put("checkpoint", place.checkpoint());
    described.putObject("$max").put("operators." + place.operator() + "." + place.store() + ".partitions", place.partition() + 1);
    ObjectNode fresh = json.objectNode().put("created", Manifest.now());
    apply(
        List.of(
            new Operation.Update(place.registration(), named, json.objectNode(), false),
            new Operation.Update(place.description(), described, fresh, false)));
  }

  /** State that begins anew under the old identity has versions again below the floor of before. */
  void lowerFloor() throws IOException, InterruptedException {
    if (!one(new Operation.Get(place.floor(), null)).absent()) {
      one(new Operation.Put(place.floor(), JsonNodeFactory.instance.objectNode().put("version", 1), false, null));
    }
  }

  // ---- the table

  List<Outcome> apply(List<Operation> operations) throws IOException, InterruptedException {
    return table.apply(operations, meter);
  }

  Outcome one(Operation operation) throws IOException, InterruptedException {
    return apply(List.of(operation)).get(0);
  }

  CompletableFuture<List<Outcome>> begin(List<Operation> operations) {
    return operations.isEmpty() ? CompletableFuture.completedFuture(List.of()) : table.begin(operations, meter);
  }

  <T> T await(CompletableFuture<T> future) throws IOException, InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException error) {
      if (error.getCause() instanceof IOException cause) {
        cause.addSuppressed(new IOException("waited for here"));
        throw cause;
      }
      throw new IllegalStateException(error.getCause());
    } catch (InterruptedException error) {
      future.cancel(true);
      throw error;
    }
  }

  private Operation addTo(Key key, String list, String name) {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$addToSet").put(list, name);
    return new Operation.Update(key, update, JsonNodeFactory.instance.objectNode(), false);
  }

  private void mine(Key key, Manifest manifest) throws IOException, InterruptedException {
    Outcome present = one(new Operation.Get(key, List.of("uid", "attempt", "time")));
    if (present.absent() || !present.value().path("uid").asText().equals(manifest.uid())) {
      throw new StateUnreadable(key + " is there, and is not what was written");
    }
  }

  private Manifest manifestOf(Key key, Outcome outcome) throws StateUnreadable {
    try {
      return Manifest.of(outcome.value());
    } catch (IllegalArgumentException error) {
      throw new StateUnreadable(key + " is damaged: " + error.getMessage(), error);
    }
  }

  private byte[] decompressed(byte[] data, Blocks.Address address, Key key) throws StateUnreadable {
    try {
      return Block.decompressed(data, codec(address.codec()));
    } catch (IOException | RuntimeException error) {
      throw new StateUnreadable(key + " is damaged: it cannot be decompressed", error);
    }
  }

  private String whyMissing(long version) throws IOException, InterruptedException {
    Outcome floor = one(new Operation.Get(place.floor(), null));
    long lowest = floor.absent() ? 0 : floor.value().path("version").asLong();
    return version < lowest ? "; versions below " + lowest + " were removed, as no longer to be retained" : "";
  }
}
