package tableside.state;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** Makes a version in memory of the one that is nearest to it and what the table has after that. */
final class Loader {
  /** What is done with the first record that is read: Spark's check that it is of this query's schemas. */
  interface Check {
    void record(UnsafeRow key, UnsafeRow value);
  }

  private final StateLog log;
  private final Blocks blocks;
  private final Check check;
  private final int keyFields;
  private final int valueFields;
  private boolean checked;

  /** @param blocks numbers the blocks that values stay in; null where all values are kept in memory */
  Loader(StateLog log, Blocks blocks, int keyFields, int valueFields, Check check) {
    this.log = log;
    this.blocks = blocks;
    this.keyFields = keyFields;
    this.valueFields = valueFields;
    this.check = check;
  }

  /**
   * @param nearest a version that the manifest's lineage passes, or the empty one
   * @param prefixes makes the keys by prefix; null where they are not needed
   * @throws StateUnreadable if anything is missing or damaged: never less than the whole
   */
  Version load(Manifest manifest, Version nearest, Prefixes prefixes) throws IOException, InterruptedException {
    Lineage lineage = manifest.lineage();
    boolean anew = !lineage.passes(nearest.number(), nearest.uid());
    Edit edit = anew ? Entries.empty(nearest.entries().inline()).edit() : nearest.entries().edit();
    if (anew && lineage.base() != null) {
      Lineage.Base base = lineage.base();
      String chunks = Place.snapshotChunks(base.version(), base.snapshot());
      apply(log.snapshot(base), base.version(), chunks, base.codec(), edit);
    }
    for (Lineage.Delta delta : anew ? lineage.deltas() : lineage.after(nearest.number(), nearest.uid())) {
      String chunks = Place.deltaChunks(delta.version(), delta.uid());
      apply(log.delta(delta), delta.version(), chunks, delta.codec(), edit);
    }
    Entries entries = edit.freeze();
    if (entries.size() != manifest.records()) {
      throw new StateUnreadable(
          "version " + manifest.version() + " of " + log.place().path() + " has " + entries.size() + " records of "
              + manifest.records());
    }
    return new Version(
        manifest.version(), manifest.uid(), lineage, entries, prefixes == null ? null : byPrefix(entries, prefixes));
  }

  private void apply(ChunkReader reader, long version, String chunks, String codec, Edit edit)
      throws IOException, InterruptedException {
    try {
      for (byte[] block = reader.next(); block != null; block = reader.next()) {
        int number = 0;
        if (blocks != null) {
          number = blocks.add(new Blocks.Address(version, chunks, reader.first(), codec));
          blocks.copy(number, block, block.length);
        }
        apply(block, number, edit, log.place().chunk(chunks, reader.first()));
      }
    } finally {
      reader.cancel();
    }
  }

  private void apply(byte[] block, int number, Edit edit, Key key) throws StateUnreadable {
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
              edit.put(bytes, keyOffset, keyLength, bytes, valueOffset, valueLength, Blocks.location(number, valueAt));
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

  private Entries byPrefix(Entries entries, Prefixes prefixes) {
    Prefixes.Changes all = new Prefixes.Changes();
    UnsafeRow key = new UnsafeRow(keyFields);
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      key.pointTo(entries.base(at), entries.keyOffset(at), entries.keyLength(at));
      all.note(prefixes.of(key), Prefixes.bytes(key), true);
    }
    return all.applied(Entries.empty(true));
  }
}
