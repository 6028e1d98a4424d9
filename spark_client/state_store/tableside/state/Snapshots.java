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

/** Writes a version's whole state, so that what comes after can be loaded without what came before. */
final class Snapshots {
  private static final Logger LOG = LoggerFactory.getLogger(Snapshots.class);

  private final StateLog log;
  private final Values values;
  private final Versions versions;
  private final StateStoreId id;
  private final StateStoreConf conf;
  private final Configuration hadoop;

  /** @param values null where all values are kept in memory */
  Snapshots(
      StateLog log, Values values, Versions versions, StateStoreId id, StateStoreConf conf, Configuration hadoop) {
    this.log = log;
    this.values = values;
    this.versions = versions;
    this.id = id;
    this.conf = conf;
    this.hadoop = hadoop;
  }

  /** What was written: the snapshot, and where it has put the values that are not in memory, in the entries' order. */
  record Written(Lineage.Base base, long[] locations) {}

  /** Write a snapshot of a version that was committed, if so many deltas came after the last one; later ones build on it. */
  synchronized void takeIfBehind(Version version, int deltas) throws IOException, InterruptedException {
    if (versions.lineageOf(version).deltas().size() >= deltas) {
      take(version);
    }
  }

  private void take(Version version) throws IOException, InterruptedException {
    versions.build(version, write(version), values);
    log.meter().snapshots.increment();
    LOG.info("wrote a snapshot of version {} of {}", version.number(), log.place().path());
    report(version.number());
  }

  /** Write one if that can be done now; if not, maintenance will. */
  synchronized void tryToTake(Version version) throws InterruptedException {
    try {
      take(version);
    } catch (IOException error) {
      LOG.warn("no snapshot of version {} of {}: maintenance will write one", version.number(), log.place().path(), error);
    }
  }

  private Written write(Version version) throws IOException, InterruptedException {
    String name = UUID.randomUUID().toString();
    log.await(log.attemptSnapshot(version.number(), name));
    Entries entries = version.entries();
    ChunkWriter writer = log.snapshotWriter(version.number(), name, values == null ? null : values.blocks());
    long[] locations = entries.inline() ? inline(entries, writer) : remote(entries, writer);
    int chunks = writer.finish();
    Lineage.Base base = new Lineage.Base(version.number(), version.uid(), name, chunks, log.codecName());
    log.publishSnapshot(base, entries.size(), writer.bytes());
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
    Values.Scan scan = values.scan(entries);
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      byte[] value = scan.value(at);
      locations[index++] =
          writer.add(
              entries.base(at), entries.keyOffset(at), entries.keyLength(at),
              value, Platform.BYTE_ARRAY_OFFSET, value.length);
    }
    return locations;
  }

  /** The coordinator watches how far snapshots lag behind, and forces some where they seem to. */
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
