package tableside.state;

import java.io.IOException;
import org.apache.spark.unsafe.Platform;

/** Writes a store's changes as a delta to the table, and applies them to the entries. */
final class DeltaWriter {
  private DeltaWriter() {}

  /**
   * @param changes the changes; a value length of -1 marks a removed record
   * @param base the entries to change
   * @param values caches the values that the entries do not contain; null if they contain all values
   * @return the entries after the changes
   */
  static Entries write(Entries changes, Entries base, ChunkWriter writer, ValueCache values)
      throws IOException, InterruptedException {
    MutableEntries edit = base.edit();
    for (int at = changes.next(Entries.NONE); at != Entries.NONE; at = changes.next(at)) {
      Object bytes = changes.base(at);
      long keyOffset = changes.keyOffset(at);
      int keyLength = changes.keyLength(at);
      int valueLength = changes.valueLength(at);
      if (valueLength >= 0) {
        long valueOffset = changes.valueOffset(at);
        long location = writer.add(bytes, keyOffset, keyLength, bytes, valueOffset, valueLength);
        edit.put(bytes, keyOffset, keyLength, bytes, valueOffset, valueLength, location);
        keep(values, location, bytes, valueOffset, valueLength);
      } else if (base.find(bytes, keyOffset, keyLength) != Entries.NONE) {
        writer.add(bytes, keyOffset, keyLength, null, 0, Block.REMOVED);
        edit.remove(bytes, keyOffset, keyLength);
      }
    }
    return edit.freeze();
  }

  private static void keep(ValueCache values, long location, Object bytes, long offset, int length) {
    if (values != null) {
      byte[] value = new byte[length];
      Platform.copyMemory(bytes, offset, value, Platform.BYTE_ARRAY_OFFSET, length);
      values.put(location, value);
    }
  }
}
