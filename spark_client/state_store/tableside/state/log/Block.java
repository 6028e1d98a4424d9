package tableside.state.log;

import java.io.IOException;
import java.util.Arrays;
import java.util.Queue;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.unsafe.Platform;

/**
 * Consecutive records, compressed together. Each record is the key's length, the key, the value's length and the value.
 * Lengths are four bytes, big-endian. A value length of -1 marks a removed record.
 */
public final class Block {
  public static final int REMOVED = -1;
  private static final int LENGTHS = 2 * Integer.BYTES;

  private byte[] bytes;
  private int used;

  Block(int capacity) {
    bytes = new byte[capacity];
  }

  boolean isEmpty() {
    return used == 0;
  }

  /** Whether the block stays within `bytesMax` if a record with these lengths is added. */
  boolean fits(int keyLength, int valueLength, int bytesMax) {
    return (long) used + LENGTHS + keyLength + Math.max(valueLength, 0) <= bytesMax;
  }

  /** Appends a record and returns the offset of its value. A `valueLength` of -1 marks a removed record. */
  int add(Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength) {
    makeRoom(LENGTHS + (long) keyLength + Math.max(valueLength, 0));
    append(keyLength);
    append(keyBase, keyOffset, keyLength);
    append(valueLength);
    int at = used;
    if (valueLength > 0) {
      append(valueBase, valueOffset, valueLength);
    }
    return at;
  }

  Queue<byte[]> compressed(CompressionCodec codec, int partBytesMax) throws IOException {
    return CompressedBlock.of(bytes, used, codec, partBytesMax);
  }

  /** The offset of the value of a block's first record. */
  static int firstValueAt(int keyLength) {
    return LENGTHS + keyLength;
  }

  void copyTo(BlockIndex blocks, int number) {
    blocks.copy(number, bytes, used);
  }

  void clear() {
    used = 0;
  }

  /** Receives each record of a block. */
  public interface Visitor {
    /**
     * The key is `keyLength` bytes from `keyAt`, the value `valueLength` bytes from `valueAt`; a length of -1 means
     * removed.
     */
    void record(byte[] block, int keyAt, int keyLength, int valueAt, int valueLength);
  }

  /** @throws IOException if the bytes are not a sequence of complete records */
  public static void visit(byte[] block, Visitor visitor) throws IOException {
    int at = 0;
    while (at < block.length) {
      int keyLength = length(block, at, 0);
      int keyAt = at + Integer.BYTES;
      int valueLength = length(block, keyAt + keyLength, REMOVED);
      int valueAt = keyAt + keyLength + Integer.BYTES;
      at = valueAt + Math.max(valueLength, 0);
      visitor.record(block, keyAt, keyLength, valueAt, valueLength);
    }
  }

  private static int length(byte[] block, int at, int least) throws IOException {
    if (at > block.length - Integer.BYTES) {
      throw new IOException("a record is truncated");
    }
    int length =
        (block[at] << 24) | (block[at + 1] & 0xff) << 16 | (block[at + 2] & 0xff) << 8 | (block[at + 3] & 0xff);
    if (length < least || length > block.length - at - Integer.BYTES) {
      throw new IOException("an invalid length of " + length + " in a block of " + block.length + " bytes");
    }
    return length;
  }

  private void append(int number) {
    bytes[used++] = (byte) (number >>> 24);
    bytes[used++] = (byte) (number >>> 16);
    bytes[used++] = (byte) (number >>> 8);
    bytes[used++] = (byte) number;
  }

  private void append(Object base, long offset, int length) {
    Platform.copyMemory(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET + used, length);
    used += length;
  }

  private void makeRoom(long more) {
    long needed = used + more;
    if (needed > Integer.MAX_VALUE - 16) {
      throw new IllegalStateException("a record of " + more + " bytes does not fit in a block");
    }
    if (needed > bytes.length) {
      bytes = Arrays.copyOf(bytes, (int) Math.min(Math.max(needed, 2L * bytes.length), Integer.MAX_VALUE - 16));
    }
  }
}
