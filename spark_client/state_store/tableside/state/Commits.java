package tableside.state;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;

/** Makes what was written to a store its next version: the delta first, the manifest last. */
final class Commits {
  private final StateLog log;
  private final Values values;
  private final Versions versions;
  private final Snapshots snapshots;
  private final StateStoreId id;
  private final StateStoreConf conf;
  private final Configuration hadoop;
  private volatile boolean registered;

  /** @param values null where all values are kept in memory */
  Commits(
      StateLog log, Values values, Versions versions, Snapshots snapshots, StateStoreId id, StateStoreConf conf,
      Configuration hadoop) {
    this.log = log;
    this.values = values;
    this.versions = versions;
    this.snapshots = snapshots;
    this.id = id;
    this.conf = conf;
    this.hadoop = hadoop;
  }

  /** @return the new version, which is then visible to everybody */
  Version commit(WriteStore store) throws IOException, InterruptedException {
    long begun = System.nanoTime();
    Version base = store.loaded();
    snapshots.takeIfBehind(base, log.settings().deltasMax());
    log.await(store.announced());
    register(base);
    Version next = versions.make(() -> write(store, versions.lineageOf(base)));
    if (store.snapshotForced()) {
      snapshots.tryToTake(next);
    }
    log.meter().committedNs.add(System.nanoTime() - begun);
    if (conf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(next.number(), id, hadoop);
    }
    return next;
  }

  StateStoreMetrics metrics(WriteStore store) {
    long memory = store.state().memoryBytes() + (values == null ? 0 : values.memoryBytes());
    long changes = store.hasCommitted() ? 0 : store.changes().freeze().memoryBytes();
    return Metrics.taken(log.meter(), store.state().entries().size(), memory + changes);
  }

  private Version write(WriteStore store, Lineage lineage) throws IOException, InterruptedException {
    Version base = store.loaded();
    long number = base.number() + 1;
    ChunkWriter writer = log.deltaWriter(number, store.uid(), values == null ? null : values.blocks());
    Entries entries = Delta.write(store.changes().freeze(), base.entries(), writer, values);
    int chunks = writer.finish();
    Lineage longer = lineage.then(new Lineage.Delta(number, store.uid(), chunks, log.codecName()));
    publish(
        store,
        new Manifest(
            number, store.uid(), longer, chunks, entries.size(), writer.bytes(), store.epoch(), store.attempt(),
            Manifest.now()));
    return new Version(number, store.uid(), longer, entries, store.prefixesAfter());
  }

  private void publish(WriteStore store, Manifest manifest) throws IOException, InterruptedException {
    if (store.withIdentities()) {
      log.publish(manifest);
    } else {
      log.publishShared(manifest);
    }
  }

  /** At a store's first commit; and once for each provider of the first partition, since checkpoints may be moved. */
  private void register(Version base) throws IOException, InterruptedException {
    if (base.number() == 0) {
      log.lowerFloor();
    }
    if (!registered && (base.number() == 0 || id.partitionId() == 0)) {
      log.register();
      registered = true;
    }
  }
}
