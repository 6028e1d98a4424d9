package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * The state of a run of a streaming query: its checkpoint, its settings, and the identities of versions in its commit
 * log. The arguments of cases select the provider and its settings:
 * {@code {"provider": class, "format": 1 or 2, "directory": path, "settings": {name: value}}}.
 */
final class Query {
  static final String CONF = "spark.sql.streaming.";

  final String provider;
  final int format;
  final Path checkpoint;
  final String name;
  final Map<String, String> settings = new HashMap<>();
  final Map<String, String> conf = new HashMap<>();
  final Map<String, String> ids;
  final UUID run = UUID.randomUUID();
  boolean prefixes;
  StructType keySchema = SparkRows.KEY;
  StructType valueSchema = SparkRows.NUMBER;

  private Query(String provider, int format, Path checkpoint, String name, Map<String, String> ids) {
    this.provider = provider;
    this.format = format;
    this.checkpoint = checkpoint;
    this.name = name;
    this.ids = ids;
  }

  /** Creates a query with a new checkpoint. */
  static Query of(JsonNode arguments) throws IOException {
    LocalSpark.context();
    Path checkpoint = Files.createTempDirectory(Path.of(arguments.get("directory").asText()), "query-");
    String name = UUID.randomUUID().toString();
    Files.writeString(checkpoint.resolve("metadata"), "{\"id\":\"" + name + "\"}");
    String provider = arguments.get("provider").asText();
    Query query = new Query(provider, arguments.get("format").asInt(), checkpoint, name, new ConcurrentHashMap<>());
    arguments.path("settings").properties().forEach(each -> query.settings.put(each.getKey(), each.getValue().asText()));
    query.conf("stateStore.maintenanceInterval", "1h").conf("stateStore.rocksdb.lockAcquireTimeoutMs", 500);
    return query;
  }

  /** The same query after a restart: a new run with the same checkpoint and commit log. */
  Query restarted() {
    return restarted(format);
  }

  /** The same query after a restart with another checkpoint format. */
  Query restarted(int format) {
    return restarted(format, checkpoint);
  }

  /** The same query after a restart from a copy of its checkpoint. */
  Query copied() throws IOException {
    Path copy = Files.createTempDirectory(checkpoint.getParent(), "copy-");
    Files.copy(checkpoint.resolve("metadata"), copy.resolve("metadata"));
    return restarted(format, copy);
  }

  private Query restarted(int format, Path checkpoint) {
    Query again = new Query(provider, format, checkpoint, name, ids);
    again.settings.putAll(settings);
    again.conf.putAll(conf);
    again.prefixes = prefixes;
    again.keySchema = keySchema;
    again.valueSchema = valueSchema;
    return again;
  }

  /** Sets the setting {@code spark.sql.streaming.<name>} of Spark. */
  Query conf(String setting, Object value) {
    conf.put(CONF + setting, value.toString());
    return this;
  }

  /** Sets the setting {@code tableside.state.<name>} of Tableside. */
  Query setting(String setting, Object value) {
    settings.put(setting, value.toString());
    return this;
  }

  boolean ours() {
    return provider.startsWith("tableside.");
  }

  boolean isSparks(String name) {
    return provider.contains(name);
  }

  /** Opens partition 0 of operator 0, as an executor does. */
  Partition open() {
    return open(0);
  }

  Partition open(int partition) {
    return Partition.open(this, storeId(0, partition, StateStoreId.DEFAULT_STORE_NAME()));
  }

  StateStoreId storeId(long operator, int partition, String store) {
    return StateStoreId.apply(checkpoint.resolve("state").toUri().toString(), operator, partition, store);
  }

  StateStoreProviderId providerId(StateStoreId id) {
    return StateStoreProviderId.apply(id, run);
  }

  /** The place of a partition of operator 0 in the table. */
  String place(int partition) {
    return name + "/0/" + partition + "/default";
  }

  /** The identity of a version of a partition in the commit log, in checkpoint format 2. */
  Option<String> idOf(StateStoreId partition, long version) {
    return format == 1 ? Option.empty() : Option.apply(ids.get(partition + "@" + version));
  }

  void committed(StateStoreId partition, long version, Option<String> id) {
    if (id.isDefined()) {
      ids.put(partition + "@" + version, id.get());
    }
  }

  KeyStateEncoderSpec keys() {
    return prefixes ? new PrefixKeyScanStateEncoderSpec(keySchema, 1) : new NoPrefixKeyStateEncoderSpec(keySchema);
  }

  StateStoreConf storeConf() {
    SQLConf all = new SQLConf();
    all.setConfString(CONF + "stateStore.providerClass", provider);
    all.setConfString(CONF + "stateStore.checkpointFormatVersion", Integer.toString(format));
    conf.forEach(all::setConfString);
    return new StateStoreConf(all, Map$.MODULE$.empty());
  }

  /** The Hadoop configuration that Spark gives to a provider. */
  Configuration hadoop() {
    Configuration hadoop = new Configuration(false);
    hadoop.set("sql.streaming.runId", run.toString());
    settings.forEach((setting, value) -> hadoop.set("tableside.state." + setting, value));
    conf.forEach(hadoop::set);
    return hadoop;
  }
}
