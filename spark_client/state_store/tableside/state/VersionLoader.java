package tableside.state;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import tableside.state.http.Key;
import tableside.state.log.Block;
import tableside.state.log.BlockIndex;
import tableside.state.log.ChunkReader;
import tableside.state.log.Lineage;
import tableside.state.log.Manifest;
import tableside.state.log.StateLog;
import tableside.state.log.StateUnreadable;
import tableside.state.log.StoreKeys;
import tableside.state.memory.Entries;
import tableside.state.memory.MutableEntries;

/** Loads a version: takes the nearest version in memory and applies the snapshot or deltas that it lacks. */
final class VersionLoader {
  /** Checks the first record that is read, with Spark's validation of the query's schemas. */
  interface FirstRecordCheck {
    void record(UnsafeRow key, UnsafeRow value);
  }

  private final StateLog log;
  private final BlockIndex blocks;
  private final FirstRecordCheck check;
  private final int keyFields;
  private final int valueFields;
  private boolean checked;

  /** @param blocks numbers the blocks that contain the values; null if all values are kept in memory */
  VersionLoader(StateLog log, BlockIndex blocks, int keyFields, int valueFields, FirstRecordCheck check) {
    this.log = log;
    this.blocks = blocks;
    this.keyFields = keyFields;
    this.valueFields = valueFields;
    this.check = check;
  }

  /**
   * @param nearest a version that the manifest's lineage contains, or the empty one
   * @param prefixes extracts prefixes for the prefix index; null if the operator does not scan by prefix
   * @throws StateUnreadable if any part is missing or damaged; a partial version is never returned
   */
  StateVersion load(Manifest manifest, StateVersion nearest, PrefixIndex prefixes)
      throws IOException, InterruptedException {
    Lineage lineage = manifest.lineage();
    boolean fromScratch = !lineage.contains(nearest.number(), nearest.uid());
    MutableEntries edit = fromScratch ? Entries.empty(nearest.entries().inline()).edit() : nearest.entries().edit();
    if (fromScratch && lineage.base() != null) {
      Lineage.Base base = lineage.base();
      String chunks = StoreKeys.snapshotChunks(base.version(), base.snapshot());
      apply(log.snapshot(base), base.version(), chunks, base.codec(), edit);
    }
    for (Lineage.Delta delta : fromScratch ? lineage.deltas() : lineage.after(nearest.number(), nearest.uid())) {
      String chunks = StoreKeys.deltaChunks(delta.version(), delta.uid());
      apply(log.delta(delta), delta.version(), chunks, delta.codec(), edit);
    }
    Entries entries = edit.freeze();
    if (entries.size() != manifest.records()) {
      throw new StateUnreadable(
          "version " + manifest.version() + " of " + log.keys().prefix() + " has " + entries.size()
              + " records, expected " + manifest.records());
    }
    Entries index = prefixes == null ? null : indexByPrefix(entries, prefixes);
    return new StateVersion(manifest.version(), manifest.uid(), lineage, entries, index);
  }

  private void apply(ChunkReader reader, long version, String chunks, String codec, MutableEntries edit)
      throws IOException, InterruptedException {
    try {
      for (byte[] block = reader.next(); block != null; block = reader.next()) {
        int number = 0;
        if (blocks != null) {
          number = blocks.add(new BlockIndex.Address(version, chunks, reader.first(), codec));
          blocks.copy(number, block, block.length);
        }
        apply(block, number, edit, log.keys().chunk(chunks, reader.first()));
        edit.reclaim(); // a delta may change one key many times
      }
    } finally {
      reader.cancel();
    }
  }

  private void apply(byte[] block, int number, MutableEntries edit, Key key) throws StateUnreadable {
    try {
      Block.visit(
          block,
          (bytes, keyAt, keyLength, valueAt, valueLength) -> {
            long keyOffset = Platform.BYTE_ARRAY_OFFSET + (long) keyAt;
            long valueOffset = Platform.BYTE_ARRAY_OFFSET + (long) valueAt;
            if (valueLength == Block.REMOVED) {
              edit.remove(bytes, keyOffset, keyLength);
            } else {
              checkFirst(bytes, keyOffset, keyLength, valueOffset, valueLength);
              long location = BlockIndex.location(number, valueAt);
              edit.put(bytes, keyOffset, keyLength, bytes, valueOffset, valueLength, location);
            }
          });
    } catch (IOException error) {
      throw new StateUnreadable(key + " is damaged: " + error.getMessage(), error);
    }
  }

  private void checkFirst(byte[] bytes, long keyOffset, int keyLength, long valueOffset, int valueLength) {
    if (!checked) {
      checked = true;
      UnsafeRow key = new UnsafeRow(keyFields);
      key.pointTo(bytes, keyOffset, keyLength);
      UnsafeRow value = new UnsafeRow(valueFields);
      value.pointTo(bytes, valueOffset, valueLength);
      check.record(key, value);
    }
  }

  private Entries indexByPrefix(Entries entries, PrefixIndex prefixes) {
    PrefixIndex.Changes all = new PrefixIndex.Changes();
    UnsafeRow key = new UnsafeRow(keyFields);
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      key.pointTo(entries.base(at), entries.keyOffset(at), entries.keyLength(at));
      all.add(prefixes.of(key), PrefixIndex.bytes(key), true);
    }
    return all.applyTo(Entries.empty(true));
  }
}
