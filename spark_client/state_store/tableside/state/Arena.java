package tableside.state;

import java.util.Arrays;

/**
 * Memory that is only appended to, shared by the versions that descend from each other: segments of words of 8 bytes.
 *
 * <p>An address counts words; a segment begins each {@link #SEGMENT_WORDS}. The first segments are shorter than that,
 * so that little state costs little, and one that is made for a longer entry holds just that one. What is in the words
 * is {@link Entry}'s matter. They are `long[]`, as Spark's own pages on the heap are: their alignment is certain.
 *
 * <p>Several threads may reserve and read at once. Nobody writes where another has reserved.
 */
final class Arena {
  static final int NONE = 0;

  private static final int SEGMENT_BITS = 15;
  static final int SEGMENT_WORDS = 1 << SEGMENT_BITS;
  /**
   * With the array's header a quarter of G1's smallest region: a larger object has regions to itself, and its segment
   * would take twice its memory.
   */
  private static final int USUAL_WORDS_MAX = SEGMENT_WORDS - 4;

  private static final int USUAL_WORDS_MIN = 512;
  /** So that no address, nor the end of a segment, is beyond an int. */
  static final int SEGMENTS_MAX = (1 << 31 - SEGMENT_BITS) - 1;

  /** Grows by being replaced; what is at an index stays there. The first is missing, so that no address is NONE. */
  private volatile long[][] segments = new long[2][];

  private final int segmentsMax;
  private final long expectedWords;
  private int segmentsUsed = 1;
  private int start;
  private int tail;
  private int end;
  private long closedWords;
  private long allocatedWords;

  /** What an edit may write to, from `start` until before `end`. */
  record Block(int start, int end) {}

  /** An arena of at most so many segments' addresses, whose first segment suits what is expected at once. */
  Arena(int segmentsMax, long expectedWords) {
    this.segmentsMax = segmentsMax;
    this.expectedWords = expectedWords;
  }

  /** Another of the same bound, empty. */
  Arena fresh(long expectedWords) {
    return new Arena(segmentsMax, expectedWords);
  }

  /** The array that holds what is at an address. */
  long[] words(int address) {
    return segments[address >>> SEGMENT_BITS];
  }

  /** Where in that array it is. */
  static int at(int address) {
    return address & SEGMENT_WORDS - 1;
  }

  /** Reserve words that follow each other: so many as are wanted, or what is left of a segment, but enough. */
  synchronized Block reserve(int enough, int wanted) {
    if (end - tail < enough) {
      open(enough);
    }
    int from = tail;
    tail += Math.min(end - from, Math.max(enough, wanted));
    return new Block(from, tail);
  }

  /** Take back what was not used of a block, where nobody has reserved after it. Otherwise it is lost. */
  synchronized void release(int from, int until) {
    if (until == tail && from >= start) {
      tail = from;
    }
  }

  /** What has been reserved, and what was left at the ends of segments: all that is not to be written again. */
  synchronized long spentWords() {
    return closedWords + (tail - start);
  }

  synchronized long allocatedBytes() {
    return allocatedWords * Long.BYTES;
  }

  private void open(int enough) {
    int length = Math.max(enough, usualWords());
    int span = (int) ((length + SEGMENT_WORDS - 1L) / SEGMENT_WORDS);
    if (span > segmentsMax - segmentsUsed) {
      throw full();
    }
    append(new long[length], span);
    closedWords += end - start;
    start = segmentsUsed << SEGMENT_BITS;
    tail = start;
    end = start + length;
    allocatedWords += length;
    segmentsUsed += span;
  }

  /** As much again as there is, so that at most half is unused; at most what a segment may. */
  private int usualWords() {
    long words = allocatedWords == 0 ? expectedWords : allocatedWords;
    return (int) Math.min(USUAL_WORDS_MAX, Math.max(USUAL_WORDS_MIN, words));
  }

  private void append(long[] segment, int span) {
    long[][] longer = segments;
    if (segmentsUsed + span > longer.length) {
      longer = Arrays.copyOf(longer, Math.max(segmentsUsed + span, 2 * longer.length));
    }
    longer[segmentsUsed] = segment;
    segments = longer;
  }

  private IllegalStateException full() {
    long mebibytes = (long) segmentsMax * SEGMENT_WORDS * Long.BYTES >> 20;
    return new IllegalStateException(
        "a partition's state is limited to " + mebibytes + " MiB in memory, replaced values that are not yet"
            + " reclaimed included; use more partitions");
  }
}
