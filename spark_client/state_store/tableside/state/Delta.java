package tableside.state;

import java.io.IOException;
import org.apache.spark.unsafe.Platform;

/** Turns a store's changes into a delta in the table, and into the next version's entries. */
final class Delta {
  private Delta() {}

  /**
   * @param changes the value's length is -1 where a record was removed
   * @param base what they change
   * @param values keeps values that the entries do not; null where all are in the entries
   * @return the entries after the changes
   */
  static Entries write(Entries changes, Entries base, ChunkWriter writer, Values values)
      throws IOException, InterruptedException {
    Edit edit = base.edit();
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

  private static void keep(Values values, long location, Object bytes, long offset, int length) {
    if (values != null) {
      byte[] value = new byte[length];
      Platform.copyMemory(bytes, offset, value, Platform.BYTE_ARRAY_OFFSET, length);
      values.keep(location, value);
    }
  }
}
