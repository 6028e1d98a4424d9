package tableside.state;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import tableside.state.log.ChunkWriter;
import tableside.state.log.Lineage;
import tableside.state.log.Manifest;
import tableside.state.log.StateLog;
import tableside.state.memory.Entries;

/** Commits the changes of a store as its next version: writes the delta first and the manifest last. */
final class Committer {
  private final StateLog log;
  private final ValueCache values;
  private final VersionCache versions;
  private final SnapshotWriter snapshots;
  private final StateStoreId id;
  private final StateStoreConf conf;
  private final Configuration hadoop;
  private volatile boolean registered;

  /** @param values null if all values are kept in memory */
  Committer(
      StateLog log, ValueCache values, VersionCache versions, SnapshotWriter snapshots, StateStoreId id,
      StateStoreConf conf, Configuration hadoop) {
    this.log = log;
    this.values = values;
    this.versions = versions;
    this.snapshots = snapshots;
    this.id = id;
    this.conf = conf;
    this.hadoop = hadoop;
  }

  /**
   * Begins the delta of a version. Registers the query with a store's first version, and once per provider of partition
   * 0, since a checkpoint may be moved.
   */
  ChunkWriter beginDelta(long version, String uid) {
    boolean register = !registered && (version == 1 || id.partitionId() == 0);
    return log.attempts().beginDelta(version, uid, register, values == null ? null : values.blocks());
  }

  /** @return the new version, which is now visible to all readers */
  StateVersion commit(WriteStore store) throws IOException, InterruptedException {
    long begun = System.nanoTime();
    StateVersion base = store.loaded();
    snapshots.takeIfDue(base, log.settings().deltasMax());
    if (base.number() == 0) {
      log.attempts().resetFloor();
    }
    StateVersion next = versions.create(() -> write(store, versions.lineageOf(base)));
    registered = true;
    if (store.snapshotForced) {
      snapshots.tryForced(next);
    }
    log.counters().commitNs.add(System.nanoTime() - begun);
    if (conf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(next.number(), id, hadoop);
    }
    return next;
  }

  StateStoreMetrics metrics(WriteStore store) {
    long memory = store.state().memoryBytes() + (values == null ? 0 : values.memoryBytes());
    long changes = store.hasCommitted() ? 0 : store.changes.latest().freeze().memoryBytes();
    return SparkMetrics.drain(log.counters(), store.state().entries().size(), memory + changes);
  }

  private StateVersion write(WriteStore store, Lineage lineage) throws IOException, InterruptedException {
    StateVersion base = store.loaded();
    long number = base.number() + 1;
    ChunkWriter delta = store.changes.delta();
    int chunks = delta.finish();
    Entries entries = store.changes.applyTo(base.entries(), values);
    Lineage longer = lineage.append(new Lineage.Delta(number, store.uid, chunks, log.codecName()));
    publish(
        store,
        new Manifest(
            number, store.uid, longer, chunks, entries.size(), delta.bytes(), store.epoch, store.attempt,
            Manifest.now()));
    delta.commit();
    return new StateVersion(number, store.uid, longer, entries, store.changes.updatedPrefixes());
  }

  private void publish(WriteStore store, Manifest manifest) throws IOException, InterruptedException {
    if (store.withCheckpointIds) {
      log.manifests().publish(manifest);
    } else {
      log.manifests().publishShared(manifest);
    }
  }
}
