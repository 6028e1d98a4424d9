package tableside.state.memory;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * The layout of an entry in an arena's words: the head (hash and key length), the value's length, the value's location,
 * the key and, if values are kept in memory, the value. Key and value each start at a word boundary.
 *
 * <p>After it is written, an entry changes in two places only: its location, and the replaced mark in the word of the
 * value's length.
 */
final class EntryLayout {
  private static final int LENGTH = 1;
  private static final int LOCATION = 2;
  private static final int KEY = 3;
  private static final long REPLACED = 1L << Integer.SIZE;
  /** Differs from Spark's seed, which has already partitioned the keys. */
  private static final int SEED = 0x7461626c;
  private static final int BYTES_MAX = Integer.MAX_VALUE - 64;
  private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);

  private EntryLayout() {}

  /** The hash and, in the low half, the key's length: equal for entries of one key, and rarely equal for other keys. */
  static long head(Object base, long offset, int length) {
    int hash =
        length % Long.BYTES == 0
            ? Murmur3_x86_32.hashUnsafeWords(base, offset, length, SEED)
            : Murmur3_x86_32.hashUnsafeBytes(base, offset, length, SEED);
    return (long) hash << Integer.SIZE | length;
  }

  static int hash(long head) {
    return (int) (head >>> Integer.SIZE);
  }

  /** The number of words of an entry; `valueBytes` is the number of bytes of its value that are in memory. */
  static int words(int keyLength, int valueBytes) {
    if ((long) keyLength + valueBytes > BYTES_MAX) {
      throw new IllegalStateException("a key and its value are limited to " + BYTES_MAX + " bytes together");
    }
    return KEY + wordsFor(keyLength) + wordsFor(valueBytes);
  }

  static void write(long[] words, int at, long head, int valueLength, long location) {
    words[at] = head;
    words[at + LENGTH] = Integer.toUnsignedLong(valueLength);
    WORD.setRelease(words, at + LOCATION, location);
  }

  static void copyKey(long[] words, int at, Object base, long offset) {
    Platform.copyMemory(base, offset, words, keyOffset(at), keyLength(words, at));
  }

  static void copyValue(long[] words, int at, Object base, long offset) {
    Platform.copyMemory(base, offset, words, valueOffset(words, at), valueLength(words, at));
  }

  /**
   * Copies an entry and returns its head. If a thread relocates the entry concurrently, the copy has either location.
   */
  static long copy(long[] words, int at, long[] copy, int copyAt, int length) {
    System.arraycopy(words, at, copy, copyAt, length);
    write(copy, copyAt, head(words, at), valueLength(words, at), location(words, at));
    return copy[copyAt];
  }

  static boolean matches(long[] words, int at, long head, Object base, long offset) {
    return words[at] == head
        && ByteArrayMethods.arrayEquals(base, offset, words, keyOffset(at), keyLength(words, at));
  }

  static long head(long[] words, int at) {
    return words[at];
  }

  static int keyLength(long[] words, int at) {
    return (int) words[at];
  }

  static int valueLength(long[] words, int at) {
    return (int) words[at + LENGTH];
  }

  static long keyOffset(int at) {
    return Platform.LONG_ARRAY_OFFSET + (at + KEY) * (long) Long.BYTES;
  }

  static long valueOffset(long[] words, int at) {
    return keyOffset(at) + wordsFor(keyLength(words, at)) * (long) Long.BYTES;
  }

  /**
   * Marks an entry as replaced or removed in some version. Other versions may still contain it. An entry without the
   * mark is in every descendant of the version that wrote it.
   */
  static void markReplaced(long[] words, int at) {
    WORD.setOpaque(words, at + LENGTH, words[at + LENGTH] | REPLACED);
  }

  static boolean isReplaced(long[] words, int at) {
    return ((long) WORD.getOpaque(words, at + LENGTH) & REPLACED) != 0;
  }

  static long location(long[] words, int at) {
    return (long) WORD.getAcquire(words, at + LOCATION);
  }

  static void relocate(long[] words, int at, long location) {
    WORD.setRelease(words, at + LOCATION, location);
  }

  private static int wordsFor(int bytes) {
    return (bytes + Long.BYTES - 1) / Long.BYTES;
  }
}
