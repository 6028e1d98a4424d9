package tableside.state;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/**
 * Where in the table the state of one store of one partition is kept: the keys of its records.
 *
 * <p>A query is known by the identity that Spark wrote into its checkpoint when it first started. So a checkpoint that is
 * moved keeps its state, and a new checkpoint in the place of a deleted one does not find the old one's.
 *
 * @param query the identity of the query, or a digest of the checkpoint's path where it has none
 * @param checkpoint the checkpoint's path, without credentials
 */
record Place(String query, String checkpoint, long operator, int partition, String store) {
  private static final int DIGEST_DIGITS = 32;
  private static final int KNOWN_MAX = 1000;
  private static final Map<String, String> KNOWN = new ConcurrentHashMap<>();

  /** @param run the run of the query, within which its identity does not change; null where none is known */
  static Place of(StateStoreId id, String run, Configuration hadoop) {
    Path state = new Path(id.checkpointRootLocation());
    Path checkpoint = state.getParent() == null ? state : state.getParent();
    String query = run == null ? queryOf(checkpoint, hadoop) : knownOrAsked(checkpoint, run, hadoop);
    return new Place(query, withoutCredentials(checkpoint), id.operatorId(), id.partitionId(), id.storeName());
  }

  /** The first part of every key of this store's records. */
  String path() {
    return query + "/" + operator + "/" + partition + "/" + store;
  }

  Key manifest(long version, String uid) {
    return at("version/" + number(version) + (uid == null ? "" : "/" + uid));
  }

  Key attempts(long version) {
    return at("attempts/" + number(version));
  }

  Key floor() {
    return at("floor");
  }

  Key snapshot(long version, String snapshot) {
    return at(snapshotChunks(version, snapshot));
  }

  /** What the items of a delta's chunks begin with. */
  static String deltaChunks(long version, String uid) {
    return "delta/" + number(version) + "/" + uid;
  }

  /** What the items of a snapshot's chunks begin with; by itself the item of its description. */
  static String snapshotChunks(long version, String snapshot) {
    return "snapshot/" + number(version) + "/" + snapshot;
  }

  Key chunk(String chunks, int index) {
    return at(chunks + String.format("/%06d", index));
  }

  /** The record that describes the query. */
  Key description() {
    return new Key(query, "query");
  }

  /** The record of the query's runs, in the order in which they were first seen. */
  Key runs() {
    return new Key(query, "runs");
  }

  /** The record that names this query among others. */
  Key registration() {
    return new Key("queries", query.substring(query.length() - 1));
  }

  private Key at(String item) {
    return new Key(path(), item);
  }

  private static String number(long version) {
    return String.format("%020d", version);
  }

  /** Of a run the identity is read once in each JVM, not for each partition of each operator. */
  private static String knownOrAsked(Path checkpoint, String run, Configuration hadoop) {
    String name = run + " " + checkpoint;
    String known = KNOWN.get(name);
    if (known != null) {
      return known;
    }
    if (KNOWN.size() >= KNOWN_MAX) {
      KNOWN.clear();
    }
    String query = queryOf(checkpoint, hadoop);
    KNOWN.put(name, query);
    return query;
  }

  private static String queryOf(Path checkpoint, Configuration hadoop) {
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
      throw new IllegalStateException("the identity of the query cannot be read from " + checkpoint + "/metadata", error);
    }
  }

  private static String withoutCredentials(Path path) {
    String user = path.toUri().getRawUserInfo();
    return user == null ? path.toString() : path.toString().replace(user + "@", "");
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
