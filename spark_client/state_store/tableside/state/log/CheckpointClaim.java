package tableside.state.log;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/**
 * Ensures that a query's state is written from one checkpoint only: the one that the query's description names.
 *
 * <p>A copy of a checkpoint has the identity of the original, and would replace and remove its versions. A moved
 * checkpoint takes the state over, because no checkpoint of the query remains at the previous path. Thread-safe.
 */
public final class CheckpointClaim {
  private static final Logger LOG = LoggerFactory.getLogger(CheckpointClaim.class);

  private final StateLog log;
  private final Path checkpoint;
  private final Configuration hadoop;
  private volatile boolean confirmed;

  public CheckpointClaim(StateLog log, StateStoreId id, Configuration hadoop) {
    this.log = log;
    this.checkpoint = StoreKeys.checkpoint(id);
    this.hadoop = hadoop;
  }

  /**
   * Checks once that the state may be changed.
   *
   * @throws StateUnreadable if it belongs to another checkpoint, or may do so
   */
  public void confirm() throws IOException, InterruptedException {
    while (!confirmed) {
      Outcome description = log.get(log.keys().description());
      confirmed = description.absent() || isOwner(description) || takeOver(description);
    }
  }

  private boolean isOwner(Outcome description) throws StateUnreadable {
    String owner = owner(description);
    if (owner == null || owner.equals(log.keys().checkpoint())) {
      return owner != null;
    }
    try {
      boolean exists = StoreKeys.readQueryId(new Path(owner), hadoop).equals(log.keys().query());
      if (exists && !isSameDirectory(new Path(owner))) {
        throw new StateUnreadable(refusal(owner, "is a copy of " + owner + ", to which the state belongs"));
      }
      return exists;
    } catch (StateUnreadable error) {
      throw error;
    } catch (IOException | RuntimeException error) {
      String what = "is a copy of " + owner + ", or was moved from there, which cannot be read";
      throw new StateUnreadable(refusal(owner, what), error);
    }
  }

  /** Compares directories that have different names, for example through a symbolic link, or with s3 and s3a. */
  private boolean isSameDirectory(Path owner) throws IOException {
    String name = ".tableside-" + UUID.randomUUID();
    FileSystem files = checkpoint.getFileSystem(hadoop);
    Path file = new Path(checkpoint, name);
    files.create(file, false).close();
    try {
      return owner.getFileSystem(hadoop).exists(new Path(owner, name));
    } finally {
      files.delete(file, false);
    }
  }

  /** Names this checkpoint in the description. Returns false if another writer has changed the description. */
  private boolean takeOver(Outcome description) throws IOException, InterruptedException {
    ObjectNode changed = ((ObjectNode) description.value()).put("checkpoint", log.keys().checkpoint());
    Operation put = new Operation.Put(log.keys().description(), changed, false, description.etag());
    boolean done = !log.applyOne(put).preconditionFailed();
    if (done) {
      LOG.info("the state of query {} moved with its checkpoint to {}", log.keys().query(), log.keys().checkpoint());
    }
    return done;
  }

  private static String owner(Outcome description) {
    return description.value().path("checkpoint").textValue();
  }

  private String refusal(String owner, String what) {
    String own = log.keys().checkpoint();
    return "checkpoint " + own + " " + what + ". Its query (" + log.keys().query() + ") cannot run from both with one"
        + " state, and nothing was changed in table " + log.settings().table() + ". Start the query from " + owner
        + ", or this one with a new checkpoint. To continue from " + own + " only, remove " + owner + " or run"
        + " `python -m tableside_spark.state move " + log.keys().query() + " " + own + " --table "
        + log.settings().table() + "`";
  }
}
