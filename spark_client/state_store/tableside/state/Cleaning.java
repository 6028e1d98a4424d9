package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Removes what no retained version needs: manifests, deltas and snapshots, those of attempts that came to nothing too.
 *
 * <p>The versions to be retained end at the oldest one's base snapshot; everything older goes, version by version, and
 * the floor follows. What is removed is never needed again even by an attempt that is still under way somewhere, since
 * the query has committed many versions after that one. Cleaning that was cut off is taken up at the floor.
 */
final class Cleaning {
  private static final int VERSIONS_AT_ONCE = 32;
  private static final int REMOVALS_AT_ONCE = 500;

  private final StateLog log;
  private long floor = -1;

  Cleaning(StateLog log) {
    this.log = log;
  }

  /** @param retained how many versions are to stay loadable beside the latest */
  void clean(long latest, long retained) throws IOException, InterruptedException {
    long oldest = latest - retained;
    if (oldest < 1) {
      return;
    }
    if (floor < 0) {
      Outcome present = log.one(new Operation.Get(log.place().floor(), null));
      floor = present.absent() ? 1 : present.value().path("version").asLong(1);
    }
    long needed = floor < oldest ? lowestBase(oldest) : floor;
    while (floor < needed) {
      long end = Math.min(floor + VERSIONS_AT_ONCE, needed);
      for (long version = floor; version < end; version++) {
        removeVersion(version);
      }
      raiseFloor(end);
      floor = end;
    }
  }

  /** The version of the oldest snapshot that an attempt at this version builds on; 0 where one builds on none. */
  private long lowestBase(long version) throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    gets.add(new Operation.Get(log.place().manifest(version, null), List.of("base")));
    for (String uid : attempted(version, "uids")) {
      gets.add(new Operation.Get(log.place().manifest(version, uid), List.of("base")));
    }
    long lowest = Long.MAX_VALUE;
    for (Outcome outcome : log.apply(gets)) {
      if (!outcome.absent()) {
        lowest = Math.min(lowest, outcome.value().path("base").path("version").asLong(0));
      }
    }
    return lowest == Long.MAX_VALUE ? 0 : lowest;
  }

  private void removeVersion(long version) throws IOException, InterruptedException {
    Place place = log.place();
    List<Key> last = new ArrayList<>();
    for (String uid : attempted(version, "uids")) {
      Key manifest = place.manifest(version, uid);
      removeChunks(Place.deltaChunks(version, uid), chunksOf(manifest));
      last.add(manifest);
    }
    for (String snapshot : attempted(version, "snapshots")) {
      Key description = place.snapshot(version, snapshot);
      removeChunks(Place.snapshotChunks(version, snapshot), chunksOf(description));
      last.add(description);
    }
    last.add(place.manifest(version, null));
    remove(last);
    remove(List.of(place.attempts(version)));
  }

  private List<String> attempted(long version, String what) throws IOException, InterruptedException {
    Outcome outcome = log.one(new Operation.Get(log.place().attempts(version), null));
    List<String> names = new ArrayList<>();
    if (!outcome.absent()) {
      for (JsonNode name : outcome.value().path(what)) {
        names.add(name.asText());
      }
    }
    return names;
  }

  /** How many chunks a manifest or a snapshot's description names; -1 where there is none. */
  private int chunksOf(Key key) throws IOException, InterruptedException {
    Outcome outcome = log.one(new Operation.Get(key, List.of("chunks")));
    return outcome.absent() ? -1 : outcome.value().path("chunks").asInt(-1);
  }

  private void removeChunks(String chunks, int described) throws IOException, InterruptedException {
    int count = described >= 0 ? described : probe(chunks);
    List<Key> keys = new ArrayList<>();
    for (int index = 0; index < count; index++) {
      keys.add(log.place().chunk(chunks, index));
    }
    Collections.reverse(keys); // the first ones last: if this is cut off, probing finds the rest
    remove(keys);
  }

  /** The end of the chunks of an attempt that did not come to its end: none comes after a group that is absent. */
  private int probe(String chunks) throws IOException, InterruptedException {
    for (int count = 0; ; count += ChunkWriter.GROUP) {
      List<Operation> gets = new ArrayList<>();
      for (int index = count; index < count + ChunkWriter.GROUP; index++) {
        gets.add(new Operation.Get(log.place().chunk(chunks, index), List.of("crc")));
      }
      if (log.apply(gets).stream().allMatch(Outcome::absent)) {
        return count;
      }
    }
  }

  private void remove(List<Key> keys) throws IOException, InterruptedException {
    for (int at = 0; at < keys.size(); at += REMOVALS_AT_ONCE) {
      List<Operation> deletions = new ArrayList<>();
      keys.subList(at, Math.min(at + REMOVALS_AT_ONCE, keys.size())).forEach(key -> deletions.add(new Operation.Delete(key)));
      log.apply(deletions);
    }
  }

  private void raiseFloor(long version) throws IOException, InterruptedException {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$max").put("version", version);
    log.one(new Operation.Update(log.place().floor(), update, JsonNodeFactory.instance.objectNode(), false));
  }
}
