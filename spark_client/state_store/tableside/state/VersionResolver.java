package tableside.state;

import java.io.IOException;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tableside.state.log.CheckpointClaim;
import tableside.state.log.DeltaHistory;
import tableside.state.log.Lineage;
import tableside.state.log.Manifest;
import tableside.state.log.StateLog;
import tableside.state.log.StateMissing;
import tableside.state.log.StateUnreadable;
import tableside.state.memory.Entries;

/**
 * Finds the versions of a store in memory, or loads them on the nearest version or snapshot.
 *
 * @param bounded whether values stay in the table
 * @param prefixColumns the number of leading key columns that form the prefix; 0 if there are no scans by prefix
 */
record VersionResolver(
    StateLog log, CheckpointClaim claim, VersionCache versions, VersionLoader loader, boolean bounded,
    int minDeltasForSnapshot, StructType keySchema, int prefixColumns) {
  private static final Logger LOG = LoggerFactory.getLogger(VersionResolver.class);

  /** Returns a version from memory or loads it. Throws Spark's error if it cannot be read completely. */
  StateVersion load(long version, String uid) {
    if (version < 0) {
      throw SparkErrors.unexpectedVersion(version);
    }
    if (version == 0) {
      return empty(0, null);
    }
    long startNs = System.nanoTime();
    try {
      return findOrLoad(version, uid);
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.reading(error);
    } finally {
      log.counters().loadNs.add(System.nanoTime() - startNs);
    }
  }

  private StateVersion findOrLoad(long version, String uid) throws IOException, InterruptedException {
    StateVersion present = uid == null ? null : versions.find(version, uid);
    if (present != null) {
      return present;
    }
    Manifest manifest = manifest(version, uid);
    present = versions.find(version, manifest.uid());
    if (present != null) {
      return present;
    }
    StateVersion loaded = versions.create(() -> load(manifest));
    LOG.info("loaded version {} of {}: {} records", version, log.keys().prefix(), loaded.entries().size());
    return loaded;
  }

  /** If the version is missing because a copy of the checkpoint is older than the retained versions, says so. */
  private Manifest manifest(long version, String uid) throws IOException, InterruptedException {
    try {
      return log.manifests().of(version, uid);
    } catch (StateMissing error) {
      claim.confirm();
      throw error;
    }
  }

  /**
   * Loads a version on the newest known snapshot, even if the manifest names an older one. If values stay in the table,
   * this is necessary: everything before the snapshot may be removed.
   */
  private StateVersion load(Manifest manifest) throws IOException, InterruptedException {
    Manifest known = bounded ? versions.rebasedOn(manifest) : manifest;
    StateVersion nearest = nearest(known.lineage());
    Manifest chosen = nearest == null ? rebaseOnSnapshot(known) : known;
    try {
      return loader.load(chosen, nearest == null ? empty(0, null) : nearest, prefixes());
    } catch (StateUnreadable error) {
      return loadOnOtherBase(chosen, error);
    }
  }

  /** Loads a version without the part that cannot be read, on the newest snapshot with which that is possible. */
  private StateVersion loadOnOtherBase(Manifest manifest, StateUnreadable failure)
      throws IOException, InterruptedException {
    for (Manifest other : new DeltaHistory(log).onOtherBases(manifest)) {
      try {
        StateVersion loaded = loader.load(other, empty(0, null), prefixes());
        versions.recover(other.lineage().base());
        LOG.warn("loaded version {} from {}: {}", other.version(), other.lineage(), failure.getMessage());
        return loaded;
      } catch (StateUnreadable error) {
        failure.addSuppressed(error);
      }
    }
    throw failure.with(" (" + log.retained() + ")");
  }

  /**
   * The nearest version in memory. If values stay in the table, it must build on the same snapshot, because another
   * executor may have removed older blocks.
   */
  private StateVersion nearest(Lineage lineage) {
    StateVersion nearest = versions.nearest(lineage);
    boolean elsewhere =
        bounded && nearest != null && !Objects.equals(versions.lineageOf(nearest).base(), lineage.base());
    return elsewhere ? null : nearest;
  }

  /** Uses a snapshot that the executor that committed the version wrote after its manifest. */
  private Manifest rebaseOnSnapshot(Manifest manifest) throws IOException, InterruptedException {
    if (manifest.lineage().deltas().size() < minDeltasForSnapshot) {
      return manifest;
    }
    List<Lineage.Base> bases = log.manifests().snapshotsOf(manifest.version(), manifest.uid());
    if (bases.isEmpty()) {
      return manifest;
    }
    versions.rebase(bases.get(0));
    return manifest.rebasedOn(bases.get(0));
  }

  /** Loads a version from the snapshot of an earlier one and the deltas after it, without adding it to the cache. */
  StateVersion replay(long snapshotVersion, String snapshotUid, long endVersion, String endUid)
      throws IOException, InterruptedException {
    Manifest manifest = new DeltaHistory(log).from(snapshotVersion, snapshotUid, endVersion, endUid);
    return loader.load(manifest, empty(0, null), prefixes());
  }

  /** An empty state as the given version. */
  StateVersion empty(long version, String uid) {
    Entries none = Entries.empty(!bounded);
    return new StateVersion(version, uid, Lineage.EMPTY, none, prefixColumns == 0 ? null : Entries.empty(true));
  }

  /** Extracts prefixes from keys; null if the operator does not scan by prefix. */
  PrefixIndex prefixes() {
    return prefixColumns == 0 ? null : new PrefixIndex(keySchema, prefixColumns);
  }
}
