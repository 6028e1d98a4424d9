package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import tableside.state.http.Key;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/**
 * Removes the manifests, deltas and snapshots that no retained version needs, including those of failed attempts.
 *
 * <p>Retention starts at the snapshot on which the oldest retained version builds. Older versions are removed in
 * rounds, and the floor is raised after each round. Not even an attempt that is still running needs a removed record,
 * because the query has committed many versions since. An interrupted cleanup resumes the next time.
 *
 * <p>Thread-safe: cleanups run one at a time.
 */
public final class VersionCleaner {
  private static final int VERSIONS_PER_ROUND = 32;
  private static final int DELETES_PER_CALL = 500;

  private final StateLog log;
  private long floor = -1;

  public VersionCleaner(StateLog log) {
    this.log = log;
  }

  /** Chunks of a delta or a snapshot, the record that describes them, and their number, or -1 if it is unknown. */
  private record ChunkRange(String chunks, Key description, int count) {}

  /**
   * @param latest the number of the latest version
   * @param lineage its lineage, all of which is retained: after a recovery it may start before that of older versions
   * @param retained how many versions before the latest remain loadable
   */
  public synchronized void clean(long latest, Lineage lineage, long retained) throws IOException, InterruptedException {
    long oldest = latest - retained;
    if (oldest < 1) {
      return;
    }
    if (floor < 0) {
      Outcome present = log.applyOne(new Operation.Get(log.keys().floor(), null));
      floor = present.absent() ? 1 : present.value().path("version").asLong(1);
    }
    long used = lineage.base() == null ? 0 : lineage.base().version();
    long needed = floor < oldest ? Math.min(used, oldestBaseVersion(oldest, latest)) : floor;
    while (floor < needed) {
      long end = Math.min(floor + VERSIONS_PER_ROUND, needed);
      deleteVersions(floor, end);
      raiseFloor(end);
      floor = end;
    }
  }

  /**
   * The version of the oldest snapshot needed: by any attempt at the oldest version, or by later versions whose
   * attempts share one manifest, where a late attempt may have replaced a manifest that others build on. 0 if one of
   * them builds on no snapshot.
   */
  private long oldestBaseVersion(long oldest, long latest) throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    for (long version = oldest; version <= latest; version++) {
      gets.add(new Operation.Get(log.keys().manifest(version, null), List.of("base")));
    }
    for (String uid : AttemptLog.names(log.applyOne(new Operation.Get(log.keys().attempts(oldest), null)), "uids")) {
      gets.add(new Operation.Get(log.keys().manifest(oldest, uid), List.of("base")));
    }
    long lowest = Long.MAX_VALUE;
    for (Outcome outcome : log.apply(gets)) {
      if (!outcome.absent()) {
        lowest = Math.min(lowest, outcome.value().path("base").path("version").asLong(0));
      }
    }
    return lowest == Long.MAX_VALUE ? 0 : lowest;
  }

  /** Removes chunks before the records that announce them, so that a second cleanup finds the rest. */
  private void deleteVersions(long from, long to) throws IOException, InterruptedException {
    List<ChunkRange> ranges = withCounts(announced(from, to), sharedManifestCounts(from, to));
    for (ChunkRange range : ranges) {
      deleteChunks(range);
    }
    List<Key> descriptions = new ArrayList<>(ranges.stream().map(ChunkRange::description).toList());
    List<Key> attempts = new ArrayList<>();
    for (long version = from; version < to; version++) {
      descriptions.add(log.keys().manifest(version, null));
      attempts.add(log.keys().attempts(version));
    }
    remove(descriptions);
    remove(attempts);
  }

  /** The deltas and snapshots announced at these versions, with the keys of the records that would describe them. */
  private List<ChunkRange> announced(long from, long to) throws IOException, InterruptedException {
    StoreKeys keys = log.keys();
    List<Operation> gets = new ArrayList<>();
    for (long version = from; version < to; version++) {
      gets.add(new Operation.Get(keys.attempts(version), null));
    }
    List<ChunkRange> announced = new ArrayList<>();
    List<Outcome> outcomes = log.apply(gets);
    for (int index = 0; index < outcomes.size(); index++) {
      long version = from + index;
      for (String uid : AttemptLog.names(outcomes.get(index), "uids")) {
        announced.add(new ChunkRange(StoreKeys.deltaChunks(version, uid), keys.manifest(version, uid), -1));
      }
      for (String snapshot : AttemptLog.names(outcomes.get(index), "snapshots")) {
        String chunks = StoreKeys.snapshotChunks(version, snapshot);
        announced.add(new ChunkRange(chunks, keys.snapshot(version, snapshot), -1));
      }
    }
    return announced;
  }

  /** The number of chunks of the deltas whose attempts share one manifest (format v1), by item prefix. */
  private Map<String, Integer> sharedManifestCounts(long from, long to) throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    for (long version = from; version < to; version++) {
      gets.add(new Operation.Get(log.keys().manifest(version, null), List.of("uid", "chunks")));
    }
    Map<String, Integer> counts = new HashMap<>();
    List<Outcome> outcomes = log.apply(gets);
    for (int index = 0; index < outcomes.size(); index++) {
      if (!outcomes.get(index).absent()) {
        JsonNode manifest = outcomes.get(index).value();
        String chunks = StoreKeys.deltaChunks(from + index, manifest.path("uid").asText());
        counts.put(chunks, manifest.path("chunks").asInt(-1));
      }
    }
    return counts;
  }

  private List<ChunkRange> withCounts(List<ChunkRange> announced, Map<String, Integer> sharedCounts)
      throws IOException, InterruptedException {
    List<Operation> gets = new ArrayList<>();
    announced.forEach(range -> gets.add(new Operation.Get(range.description(), List.of("chunks"))));
    List<Outcome> outcomes = log.apply(gets);
    List<ChunkRange> counted = new ArrayList<>();
    for (int index = 0; index < outcomes.size(); index++) {
      ChunkRange range = announced.get(index);
      Outcome outcome = outcomes.get(index);
      int count =
          outcome.absent()
              ? sharedCounts.getOrDefault(range.chunks(), -1)
              : outcome.value().path("chunks").asInt(-1);
      counted.add(new ChunkRange(range.chunks(), range.description(), count));
    }
    return counted;
  }

  private void deleteChunks(ChunkRange range) throws IOException, InterruptedException {
    if (range.count() >= 0) {
      remove(keys(range, 0, range.count()));
      return;
    }
    // Delete from the end: probing finds the rest after an interruption.
    for (int from = probe(range.chunks()) - ChunkWriter.GROUP; from >= 0; from -= ChunkWriter.GROUP) {
      remove(keys(range, from, from + ChunkWriter.GROUP));
    }
  }

  private List<Key> keys(ChunkRange range, int from, int to) {
    List<Key> keys = new ArrayList<>();
    for (int index = from; index < to; index++) {
      keys.add(log.keys().chunk(range.chunks(), index));
    }
    return keys;
  }

  /** Finds the end of the chunks of an unfinished attempt: no chunk follows a group that is completely absent. */
  private int probe(String chunks) throws IOException, InterruptedException {
    for (int count = 0; ; count += ChunkWriter.GROUP) {
      List<Operation> gets = new ArrayList<>();
      for (int index = count; index < count + ChunkWriter.GROUP; index++) {
        gets.add(new Operation.Get(log.keys().chunk(chunks, index), List.of("crc")));
      }
      if (log.apply(gets).stream().allMatch(Outcome::absent)) {
        return count;
      }
    }
  }

  private void remove(List<Key> keys) throws IOException, InterruptedException {
    for (int at = 0; at < keys.size(); at += DELETES_PER_CALL) {
      List<Operation> deletions = new ArrayList<>();
      int end = Math.min(at + DELETES_PER_CALL, keys.size());
      keys.subList(at, end).forEach(key -> deletions.add(new Operation.Delete(key)));
      log.apply(deletions);
    }
  }

  private void raiseFloor(long version) throws IOException, InterruptedException {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$max").put("version", version);
    log.applyOne(new Operation.Update(log.keys().floor(), update, JsonNodeFactory.instance.objectNode(), false));
  }
}
