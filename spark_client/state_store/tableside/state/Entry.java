package tableside.state;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * How an entry lies in an arena's words: its head (hash and key length), the value's length, the value's location, the
 * key, and the value where values are kept in memory. Key and value each begin at a word.
 *
 * <p>Nothing but the location is ever written again, and above the length the mark of what has been replaced.
 */
final class Entry {
  private static final int LENGTH = 1;
  private static final int LOCATION = 2;
  private static final int KEY = 3;
  private static final long REPLACED = 1L << Integer.SIZE;
  /** Not Spark's own seed: by that one the keys were partitioned. */
  private static final int SEED = 0x7461626c;
  private static final int BYTES_MAX = Integer.MAX_VALUE - 64;
  private static final VarHandle WORD = MethodHandles.arrayElementVarHandle(long[].class);

  private Entry() {}

  /** What entries of one key have in common and those of others hardly: the hash, and below it the key's length. */
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

  /** How many words an entry takes; `kept` are the bytes of its value that are in memory. */
  static int words(int keyLength, int kept) {
    if ((long) keyLength + kept > BYTES_MAX) {
      throw new IllegalStateException("a key and its value are limited to " + BYTES_MAX + " bytes together");
    }
    return KEY + rounded(keyLength) + rounded(kept);
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

  /** Copy an entry and return its head. Somebody may relocate it meanwhile: either location is in the copy. */
  static long copy(long[] words, int at, long[] copy, int copyAt, int length) {
    System.arraycopy(words, at, copy, copyAt, length);
    write(copy, copyAt, head(words, at), valueLength(words, at), location(words, at));
    return copy[copyAt];
  }

  static boolean is(long[] words, int at, long head, Object base, long offset) {
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
    return keyOffset(at) + rounded(keyLength(words, at)) * (long) Long.BYTES;
  }

  /**
   * Mark an entry as replaced or removed in some version. It may well be in others. But one without the mark is in
   * every version that comes from the one that wrote it.
   */
  static void replace(long[] words, int at) {
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

  private static int rounded(int bytes) {
    return (bytes + Long.BYTES - 1) / Long.BYTES;
  }
}
