package tableside.state;

import java.io.IOException;
import java.util.UUID;
import org.apache.spark.unsafe.Platform;

/** Writes a version's whole state, so that what comes after can be loaded without what came before. */
final class Snapshots {
  private final StateLog log;
  private final Values values;

  /** @param values null where all values are kept in memory */
  Snapshots(StateLog log, Values values) {
    this.log = log;
    this.values = values;
  }

  /** What was written: the snapshot, and where it has put the values that are not in memory, in the entries' order. */
  record Written(Lineage.Base base, long[] locations) {}

  Written write(Version version) throws IOException, InterruptedException {
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
}
