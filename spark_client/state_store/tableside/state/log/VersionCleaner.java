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
      floor = log.floor();
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
    List<Key> manifests = new ArrayList<>(sharedManifests(oldest, latest + 1));
    for (String uid : AttemptLog.names(log.get(log.keys().attempts(oldest)), "uids")) {
      manifests.add(log.keys().manifest(oldest, uid));
    }
    return log.get(manifests, "base").stream()
        .filter(manifest -> !manifest.absent())
        .mapToLong(manifest -> manifest.value().path("base").path("version").asLong(0))
        .min()
        .orElse(0);
  }

  /** The manifests that the attempts at each version share (format v1). */
  private List<Key> sharedManifests(long from, long to) {
    return StoreKeys.range(from, to, version -> log.keys().manifest(version, null));
  }

  /** Removes chunks before the records that announce them, so that a second cleanup finds the rest. */
  private void deleteVersions(long from, long to) throws IOException, InterruptedException {
    List<ChunkRange> ranges = withCounts(announced(from, to), sharedManifestCounts(from, to));
    for (ChunkRange range : ranges) {
      deleteChunks(range);
    }
    List<Key> descriptions = new ArrayList<>(sharedManifests(from, to));
    ranges.forEach(range -> descriptions.add(range.description()));
    remove(descriptions);
    remove(StoreKeys.range(from, to, log.keys()::attempts));
  }

  /** The deltas and snapshots announced at these versions, with the keys of the records that would describe them. */
  private List<ChunkRange> announced(long from, long to) throws IOException, InterruptedException {
    StoreKeys keys = log.keys();
    List<ChunkRange> announced = new ArrayList<>();
    long version = from;
    for (Outcome attempts : log.get(StoreKeys.range(from, to, keys::attempts))) {
      for (String uid : AttemptLog.names(attempts, "uids")) {
        announced.add(new ChunkRange(StoreKeys.deltaChunks(version, uid), keys.manifest(version, uid), -1));
      }
      for (String snapshot : AttemptLog.names(attempts, "snapshots")) {
        String chunks = StoreKeys.snapshotChunks(version, snapshot);
        announced.add(new ChunkRange(chunks, keys.snapshot(version, snapshot), -1));
      }
      version++;
    }
    return announced;
  }

  /** The number of chunks of the deltas whose attempts share one manifest (format v1), by item prefix. */
  private Map<String, Integer> sharedManifestCounts(long from, long to) throws IOException, InterruptedException {
    Map<String, Integer> counts = new HashMap<>();
    long version = from;
    for (Outcome outcome : log.get(sharedManifests(from, to), "uid", "chunks")) {
      if (!outcome.absent()) {
        JsonNode manifest = outcome.value();
        String chunks = StoreKeys.deltaChunks(version, manifest.path("uid").asText());
        counts.put(chunks, manifest.path("chunks").asInt(-1));
      }
      version++;
    }
    return counts;
  }

  private List<ChunkRange> withCounts(List<ChunkRange> announced, Map<String, Integer> sharedCounts)
      throws IOException, InterruptedException {
    List<Outcome> outcomes = log.get(announced.stream().map(ChunkRange::description).toList(), "chunks");
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
      remove(chunks(range.chunks(), 0, range.count()));
      return;
    }
    // Delete from the end: probing finds the rest after an interruption.
    for (int from = probe(range.chunks()) - ChunkWriter.GROUP; from >= 0; from -= ChunkWriter.GROUP) {
      remove(chunks(range.chunks(), from, from + ChunkWriter.GROUP));
    }
  }

  private List<Key> chunks(String chunks, int from, int to) {
    return StoreKeys.range(from, to, index -> log.keys().chunk(chunks, (int) index));
  }

  /** Finds the end of the chunks of an unfinished attempt: no chunk follows a group that is completely absent. */
  private int probe(String chunks) throws IOException, InterruptedException {
    for (int count = 0; ; count += ChunkWriter.GROUP) {
      if (log.get(chunks(chunks, count, count + ChunkWriter.GROUP), "crc").stream().allMatch(Outcome::absent)) {
        return count;
      }
    }
  }

  private void remove(List<Key> keys) throws IOException, InterruptedException {
    for (int at = 0; at < keys.size(); at += DELETES_PER_CALL) {
      List<Key> part = keys.subList(at, Math.min(at + DELETES_PER_CALL, keys.size()));
      log.apply(part.stream().<Operation>map(Operation.Delete::new).toList());
    }
  }

  private void raiseFloor(long version) throws IOException, InterruptedException {
    ObjectNode update = JsonNodeFactory.instance.objectNode();
    update.putObject("$max").put("version", version);
    log.applyOne(new Operation.Update(log.keys().floor(), update, JsonNodeFactory.instance.objectNode(), false));
  }
}
