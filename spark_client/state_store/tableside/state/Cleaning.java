package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Removes what no retained version needs: manifests, deltas and snapshots, those of attempts that came to nothing too.
 *
 * <p>What is retained begins with the snapshot that the oldest retained version builds on; everything older goes, some
 * versions at a time, and the floor follows. What is removed is not needed even by an attempt that is still under way
 * somewhere, since the query has committed many versions after that one. Cleaning that was cut off is taken up again.
 *
 * <p>Thread-safe: one cleans at a time.
 */
final class Cleaning {
  private static final int VERSIONS_AT_ONCE = 32;
  private static final int REMOVALS_AT_ONCE = 500;

  private final StateLog log;
  private long floor = -1;

  Cleaning(StateLog log) {
    this.log = log;
  }

  /** Something that was written as chunks, by somebody who may have said how many there are. */
  private record Written(String chunks, Key description, int count) {}

  /** @param retained how many versions are to stay loadable beside the latest */
  synchronized void clean(long latest, long retained) throws IOException, InterruptedException {
    long oldest = latest - retained;
    if (oldest < 1) {
      return;
    }
    if (floor < 0) {
      Outcome present = log.one(new Operation.Get(log.place().floor(), null));
      floor = present.absent() ? 1 : present.value().path("version").asLong(1);
    }
    long needed = floor < oldest ? lowestBase(oldest, latest) : floor;
    while (floor < needed) {
      long end = Math.min(floor + VERSIONS_AT_ONCE, needed);
      removeVersions(floor, end);
      raiseFloor(end);
      floor = end;
    }
  }

  /**
   * The version of the oldest snapshot that is built on by an attempt at the oldest version, or by what shares manifests
   * and came after it: there a late attempt may have replaced one on which others were built. 0 where one builds on none.
   */
  private long lowestBase(long oldest, long latest) throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    for (long version = oldest; version <= latest; version++) {
      gets.add(new Operation.Get(log.place().manifest(version, null), List.of("base")));
    }
    for (String uid : names(log.one(new Operation.Get(log.place().attempts(oldest), null)), "uids")) {
      gets.add(new Operation.Get(log.place().manifest(oldest, uid), List.of("base")));
    }
    long lowest = Long.MAX_VALUE;
    for (Outcome outcome : log.apply(gets)) {
      if (!outcome.absent()) {
        lowest = Math.min(lowest, outcome.value().path("base").path("version").asLong(0));
      }
    }
    return lowest == Long.MAX_VALUE ? 0 : lowest;
  }

  /** Remove what was attempted, before the record that says what that was: so a second try finds what is left. */
  private void removeVersions(long from, long to) throws IOException, InterruptedException {
    List<Written> written = described(attempted(from, to), shared(from, to));
    for (Written one : written) {
      removeChunks(one);
    }
    List<Key> descriptions = new ArrayList<>(written.stream().map(Written::description).toList());
    List<Key> attempts = new ArrayList<>();
    for (long version = from; version < to; version++) {
      descriptions.add(log.place().manifest(version, null));
      attempts.add(log.place().attempts(version));
    }
    remove(descriptions);
    remove(attempts);
  }

  /** The deltas and snapshots that were begun at these versions, with the keys of what would describe them. */
  private List<Written> attempted(long from, long to) throws IOException, InterruptedException {
    Place place = log.place();
    List<Operation> gets = new ArrayList<>();
    for (long version = from; version < to; version++) {
      gets.add(new Operation.Get(place.attempts(version), null));
    }
    List<Written> begun = new ArrayList<>();
    List<Outcome> outcomes = log.apply(gets);
    for (int index = 0; index < outcomes.size(); index++) {
      long version = from + index;
      for (String uid : names(outcomes.get(index), "uids")) {
        begun.add(new Written(Place.deltaChunks(version, uid), place.manifest(version, uid), -1));
      }
      for (String snapshot : names(outcomes.get(index), "snapshots")) {
        begun.add(new Written(Place.snapshotChunks(version, snapshot), place.snapshot(version, snapshot), -1));
      }
    }
    return begun;
  }

  /** How many chunks the deltas have whose manifests are shared by a version's attempts (format v1), by their items. */
  private Map<String, Integer> shared(long from, long to) throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    for (long version = from; version < to; version++) {
      gets.add(new Operation.Get(log.place().manifest(version, null), List.of("uid", "chunks")));
    }
    Map<String, Integer> counts = new HashMap<>();
    List<Outcome> outcomes = log.apply(gets);
    for (int index = 0; index < outcomes.size(); index++) {
      if (!outcomes.get(index).absent()) {
        JsonNode manifest = outcomes.get(index).value();
        counts.put(Place.deltaChunks(from + index, manifest.path("uid").asText()), manifest.path("chunks").asInt(-1));
      }
    }
    return counts;
  }

  private List<Written> described(List<Written> begun, Map<String, Integer> shared)
      throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    begun.forEach(one -> gets.add(new Operation.Get(one.description(), List.of("chunks"))));
    List<Outcome> outcomes = log.apply(gets);
    List<Written> described = new ArrayList<>();
    for (int index = 0; index < outcomes.size(); index++) {
      Written one = begun.get(index);
      Outcome outcome = outcomes.get(index);
      int count = outcome.absent() ? shared.getOrDefault(one.chunks(), -1) : outcome.value().path("chunks").asInt(-1);
      described.add(new Written(one.chunks(), one.description(), count));
    }
    return described;
  }

  private void removeChunks(Written written) throws IOException, InterruptedException {
    if (written.count() >= 0) {
      remove(keys(written, 0, written.count()));
      return;
    }
    // The first ones last: if this is cut off, probing finds the rest.
    for (int from = probe(written.chunks()) - ChunkWriter.GROUP; from >= 0; from -= ChunkWriter.GROUP) {
      remove(keys(written, from, from + ChunkWriter.GROUP));
    }
  }

  private List<Key> keys(Written written, int from, int to) {
    List<Key> keys = new ArrayList<>();
    for (int index = from; index < to; index++) {
      keys.add(log.place().chunk(written.chunks(), index));
    }
    return keys;
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

  private static List<String> names(Outcome attempts, String what) {
    List<String> names = new ArrayList<>();
    if (!attempts.absent()) {
      for (JsonNode name : attempts.value().path(what)) {
        names.add(name.asText());
      }
    }
    return names;
  }
}
