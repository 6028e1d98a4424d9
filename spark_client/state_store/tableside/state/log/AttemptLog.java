package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import tableside.state.http.Key;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/**
 * Begins deltas and snapshots. It announces each attempt before any other record of it is written, so that cleanup
 * finds the records of failed attempts.
 */
public record AttemptLog(StateLog log) {
  /**
   * Begins the delta of a commit.
   *
   * @param uid the identity of the commit
   * @param register whether to register the query and this store too, so that they can be listed
   * @param blocks numbers the blocks; null if all values are kept in memory
   */
  public ChunkWriter beginDelta(long version, String uid, boolean register, BlockIndex blocks) {
    List<Operation> announcement = new ArrayList<>();
    announcement.add(addToSet(log.keys().attempts(version), "uids", uid));
    if (register) {
      announcement.addAll(registration());
    }
    String chunks = StoreKeys.deltaChunks(version, uid);
    if (blocks != null) {
      blocks.begin(chunks);
    }
    return new ChunkWriter(log, version, chunks, log.applyAsync(announcement), blocks);
  }

  /**
   * Begins a snapshot of a version.
   *
   * @param snapshot the name of the snapshot
   * @param blocks numbers the blocks; null if all values are kept in memory
   */
  public ChunkWriter beginSnapshot(long version, String snapshot, BlockIndex blocks) {
    Operation announcement = addToSet(log.keys().attempts(version), "snapshots", snapshot);
    String chunks = StoreKeys.snapshotChunks(version, snapshot);
    return new ChunkWriter(log, version, chunks, log.applyAsync(List.of(announcement)), blocks);
  }

  /**
   * Resets the floor for a state that starts again under the same identity, and so with versions below the old floor.
   */
  public void resetFloor() throws IOException, InterruptedException {
    if (!log.get(log.keys().floor()).absent()) {
      ObjectNode floor = JsonNodeFactory.instance.objectNode().put("version", 1);
      log.applyOne(new Operation.Put(log.keys().floor(), floor, false, null));
    }
  }

  private List<Operation> registration() {
    StoreKeys keys = log.keys();
    JsonNodeFactory json = JsonNodeFactory.instance;
    ObjectNode registration = json.objectNode();
    registration.putObject("$set").put(keys.query(), true);
    ObjectNode description = json.objectNode();
    String partitions = "operators." + keys.operator() + "." + keys.store() + ".partitions";
    description.putObject("$max").put(partitions, keys.partition() + 1);
    ObjectNode defaults = json.objectNode().put("created", Manifest.now()).put("checkpoint", keys.checkpoint());
    return List.of(
        new Operation.Update(keys.registration(), registration, json.objectNode(), false),
        new Operation.Update(keys.description(), description, defaults, false));
  }

  /** The identities of the commits ("uids") or the names of the snapshots ("snapshots") that a record announces. */
  static List<String> names(Outcome attempts, String what) {
    List<String> names = new ArrayList<>();
    if (!attempts.absent()) {
      for (JsonNode name : attempts.value().path(what)) {
        names.add(name.asText());
      }
    }
    return names;
  }

  private static Operation addToSet(Key key, String list, String name) {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$addToSet").put(list, name);
    return new Operation.Update(key, update, JsonNodeFactory.instance.objectNode(), false);
  }
}
