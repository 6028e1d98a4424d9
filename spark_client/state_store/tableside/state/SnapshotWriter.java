package tableside.state;

import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.unsafe.Platform;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import tableside.state.log.ChunkWriter;
import tableside.state.log.Lineage;
import tableside.state.log.StateLog;
import tableside.state.memory.Entries;

/**
 * Writes the whole state of a version, so that later versions load without the earlier deltas.
 *
 * @param values null if all values are kept in memory
 */
record SnapshotWriter(
    StateLog log, ValueCache values, VersionCache versions, StateStoreId id, StateStoreConf conf, Configuration hadoop) {
  private static final Logger LOG = LoggerFactory.getLogger(SnapshotWriter.class);

  /** The snapshot, and the new locations of values that are not in memory, in the order of the entries. */
  record Written(Lineage.Base base, long[] locations) {}

  /**
   * Writes a snapshot of a committed version if at least `deltas` deltas follow the last snapshot, or if that is
   * damaged. Later versions build on it.
   */
  synchronized void takeIfDue(StateVersion version, int deltas) throws IOException, InterruptedException {
    if (versions.isRecovered() || versions.lineageOf(version).deltas().size() >= deltas) {
      take(version);
    }
  }

  private void take(StateVersion version) throws IOException, InterruptedException {
    versions.rebase(version, write(version), values);
    log.counters().snapshots.increment();
    LOG.info("wrote a snapshot of version {} of {}", version.number(), log.keys().prefix());
    report(version.number());
  }

  /** Tries to write a snapshot that Spark forces at a commit. After a failure, maintenance writes one. */
  synchronized void tryForced(StateVersion version) throws InterruptedException {
    try {
      take(version);
      log.counters().forcedSnapshots.increment();
    } catch (IOException error) {
      String what = "cannot write a snapshot of version {} of {}; maintenance will retry";
      LOG.warn(what, version.number(), log.keys().prefix(), error);
    }
  }

  private Written write(StateVersion version) throws IOException, InterruptedException {
    String name = UUID.randomUUID().toString();
    Entries entries = version.entries();
    ChunkWriter writer = log.attempts().beginSnapshot(version.number(), name, values == null ? null : values.blocks());
    long[] locations = entries.inline() ? inline(entries, writer) : remote(entries, writer);
    int chunks = writer.finish();
    Lineage.Base base = new Lineage.Base(version.number(), version.uid(), name, chunks, log.codecName());
    log.manifests().publishSnapshot(base, entries.size(), writer.bytes());
    return new Written(base, locations);
  }

  private static long[] inline(Entries entries, ChunkWriter writer) throws IOException, InterruptedException {
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      Object bytes = entries.base(at);
      writer.add(
          bytes, entries.keyOffset(at), entries.keyLength(at), bytes, entries.valueOffset(at), entries.valueLength(at));
    }
    return new long[0];
  }

  private long[] remote(Entries entries, ChunkWriter writer) throws IOException, InterruptedException {
    long[] locations = new long[entries.size()];
    int index = 0;
    ValueCache.Scan scan = values.scan(entries);
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      byte[] value = scan.value(at);
      locations[index++] =
          writer.add(
              entries.base(at), entries.keyOffset(at), entries.keyLength(at),
              value, Platform.BYTE_ARRAY_OFFSET, value.length);
    }
    return locations;
  }

  /** Reports the snapshot to the coordinator, which forces snapshots where they lag behind. */
  private void report(long version) {
    String run = hadoop.get(StreamExecution$.MODULE$.RUN_ID_KEY());
    if (conf.reportSnapshotUploadLag() && run != null) {
      Option<StateStoreCoordinatorRef> coordinator = StateStoreProvider$.MODULE$.coordinatorRef();
      if (coordinator.isDefined()) {
        StateStoreProviderId provider = new StateStoreProviderId(id, UUID.fromString(run));
        coordinator.get().snapshotUploaded(provider, version, System.currentTimeMillis());
      }
    }
  }
}
