package tableside.state.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongFunction;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import tableside.state.http.Key;

/**
 * The keys of the records of one store of one partition.
 *
 * <p>The identity that Spark writes into a checkpoint when the query first starts identifies the query. A checkpoint
 * that is moved therefore keeps its state, and a new checkpoint at the path of a deleted one does not find the old
 * state.
 *
 * @param query the identity of the query, or a digest of the checkpoint's path if it has none
 * @param checkpoint the checkpoint's path, without credentials
 */
public record StoreKeys(String query, String checkpoint, long operator, int partition, String store) {
  /** Begins the items of all snapshots. */
  static final String SNAPSHOTS = "snapshot/";

  private static final int DIGEST_DIGITS = 32;
  private static final int QUERY_IDS_MAX = 1000;
  private static final Map<String, String> QUERY_IDS = new ConcurrentHashMap<>();

  /** @param run the run of the query, within which its identity does not change; null if none is known */
  public static StoreKeys of(StateStoreId id, String run, Configuration hadoop) {
    Path checkpoint = checkpoint(id);
    String query = run == null ? readQueryId(checkpoint, hadoop) : cachedQueryId(checkpoint, run, hadoop);
    return new StoreKeys(query, withoutCredentials(checkpoint), id.operatorId(), id.partitionId(), id.storeName());
  }

  /** The checkpoint that contains a store's directory. */
  static Path checkpoint(StateStoreId id) {
    Path state = new Path(id.checkpointRootLocation());
    return state.getParent() == null ? state : state.getParent();
  }

  /** The first part of every key of this store's records. */
  public String prefix() {
    return query + "/" + operator + "/" + partition + "/" + store;
  }

  Key manifest(long version, String uid) {
    return key("version/" + number(version) + (uid == null ? "" : "/" + uid));
  }

  Key attempts(long version) {
    return key("attempts/" + number(version));
  }

  Key floor() {
    return key("floor");
  }

  Key snapshot(long version, String snapshot) {
    return key(snapshotChunks(version, snapshot));
  }

  /** The item prefix of a delta's chunks. */
  public static String deltaChunks(long version, String uid) {
    return "delta/" + number(version) + "/" + uid;
  }

  /** The item prefix of a snapshot's chunks, and the item of the record that describes the snapshot. */
  public static String snapshotChunks(long version, String snapshot) {
    return SNAPSHOTS + number(version) + "/" + snapshot;
  }

  public Key chunk(String chunks, int index) {
    return key(chunks + String.format("/%06d", index));
  }

  /** The record that describes the query. */
  Key description() {
    return new Key(query, "query");
  }

  /** The record of the query's runs, in the order in which they were first seen. */
  Key runs() {
    return new Key(query, "runs");
  }

  /** The record that lists this query among others. */
  Key registration() {
    return new Key("queries", query.substring(query.length() - 1));
  }

  /** The keys of consecutive numbers, from `from` (inclusive) to `to` (exclusive). */
  static List<Key> range(long from, long to, LongFunction<Key> key) {
    return LongStream.range(from, to).mapToObj(key).toList();
  }

  private Key key(String item) {
    return new Key(prefix(), item);
  }

  private static String number(long version) {
    return String.format("%020d", version);
  }

  /** Reads a run's query identity once per JVM, not for each partition of each operator. */
  private static String cachedQueryId(Path checkpoint, String run, Configuration hadoop) {
    if (QUERY_IDS.size() >= QUERY_IDS_MAX) {
      QUERY_IDS.clear();
    }
    return QUERY_IDS.computeIfAbsent(run + " " + checkpoint, name -> readQueryId(checkpoint, hadoop));
  }

  /** Returns the identity in a checkpoint, or a digest of its path if it contains none or does not exist. */
  static String readQueryId(Path checkpoint, Configuration hadoop) {
    try {
      FileSystem files = checkpoint.getFileSystem(hadoop);
      Path metadata = new Path(checkpoint, "metadata");
      if (!files.exists(metadata)) {
        return "path-" + digest(withoutCredentials(files.makeQualified(checkpoint)));
      }
      try (InputStream stream = files.open(metadata)) {
        return new ObjectMapper().readTree(stream).required("id").textValue();
      }
    } catch (IOException | IllegalArgumentException error) {
      throw new IllegalStateException("cannot read the query's identity from " + checkpoint + "/metadata", error);
    }
  }

  private static String withoutCredentials(Path prefix) {
    String user = prefix.toUri().getRawUserInfo();
    return user == null ? prefix.toString() : prefix.toString().replace(user + "@", "");
  }

  private static String digest(String text) {
    try {
      byte[] bytes = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(bytes).substring(0, DIGEST_DIGITS);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
