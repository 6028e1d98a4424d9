package tableside.state.memory;

import java.util.Arrays;

/**
 * Append-only memory, shared by versions that descend from each other: segments of 8-byte words.
 *
 * <p>An address counts words. Segments begin at multiples of {@link #SEGMENT_WORDS}. The first segments are shorter, so
 * that a small state costs little memory. An entry longer than a segment gets a segment of its own. {@link EntryLayout}
 * defines the contents of the words. Segments are `long[]`, like Spark's own on-heap pages, which guarantees alignment.
 *
 * <p>Several threads may reserve and read concurrently. A thread writes only to words that it has reserved.
 */
final class Arena {
  static final int NONE = 0;

  private static final int SEGMENT_BITS = 15;
  static final int SEGMENT_WORDS = 1 << SEGMENT_BITS;
  /**
   * With the array header, a quarter of G1's smallest region. G1 gives larger objects whole regions, which would double
   * the memory of a segment.
   */
  private static final int SEGMENT_WORDS_USUAL_MAX = SEGMENT_WORDS - 4;

  private static final int SEGMENT_WORDS_USUAL_MIN = 512;
  /** Keeps every address and the end of every segment within an int. */
  static final int SEGMENTS_MAX = (1 << 31 - SEGMENT_BITS) - 1;

  /** Grows by replacement; an index keeps its segment. Index 0 stays empty, so that no address equals NONE. */
  private volatile long[][] segments = new long[2][];

  private final int segmentsMax;
  private final long expectedWords;
  private int segmentsUsed = 1;
  private int start;
  private int tail;
  private int end;
  private long closedWords;
  private long allocatedWords;

  /** Words that one writer may write to, from `start` (inclusive) to `end` (exclusive). */
  record Reservation(int start, int end) {}

  /** Creates an arena with address space for `segmentsMax` segments. The first segment has room for `expectedWords`. */
  Arena(int segmentsMax, long expectedWords) {
    this.segmentsMax = segmentsMax;
    this.expectedWords = expectedWords;
  }

  /** Creates an empty arena with the same limit. */
  Arena fresh(long expectedWords) {
    return new Arena(segmentsMax, expectedWords);
  }

  /** The segment that contains an address. */
  long[] words(int address) {
    return segments[address >>> SEGMENT_BITS];
  }

  /** The index of an address within its segment. */
  static int at(int address) {
    return address & SEGMENT_WORDS - 1;
  }

  /** Reserves consecutive words: `wordsWanted`, or the rest of the segment if that is at least `wordsMin`. */
  synchronized Reservation reserve(int wordsMin, int wordsWanted) {
    if (end - tail < wordsMin) {
      open(wordsMin);
    }
    int from = tail;
    tail += Math.min(end - from, Math.max(wordsMin, wordsWanted));
    return new Reservation(from, tail);
  }

  /** Returns the unused end of a reservation, if no later reservation follows it. Otherwise these words are lost. */
  synchronized void release(int from, int until) {
    if (until == tail && from >= start) {
      tail = from;
    }
  }

  /** The words that cannot be written again: those reserved, and those left over at the ends of segments. */
  synchronized long spentWords() {
    return closedWords + (tail - start);
  }

  synchronized long allocatedBytes() {
    return allocatedWords * Long.BYTES;
  }

  /** Whether a segment contains one long entry only. Other arenas may share it. */
  static boolean isExclusive(long[] segment, int entryWords) {
    return segment.length == entryWords && entryWords > SEGMENT_WORDS_USUAL_MAX;
  }

  /** Adds an exclusive segment of another arena, and returns its address. */
  synchronized int share(long[] segment) {
    requireRoom(segment.length);
    open(segment);
    tail = end;
    return start;
  }

  private void open(int wordsMin) {
    int length = Math.max(wordsMin, usualSegmentWords());
    requireRoom(length);
    open(new long[length]);
  }

  private void open(long[] segment) {
    append(segment, span(segment.length));
    closedWords += end - start;
    start = segmentsUsed << SEGMENT_BITS;
    tail = start;
    end = start + segment.length;
    allocatedWords += segment.length;
    segmentsUsed += span(segment.length);
  }

  private void requireRoom(int length) {
    if (span(length) > segmentsMax - segmentsUsed) {
      throw full();
    }
  }

  private static int span(int length) {
    return (int) ((length + SEGMENT_WORDS - 1L) / SEGMENT_WORDS);
  }

  /** Doubles the arena, so that at most half of it is unused, up to the usual segment size. */
  private int usualSegmentWords() {
    long words = allocatedWords == 0 ? expectedWords : allocatedWords;
    return (int) Math.min(SEGMENT_WORDS_USUAL_MAX, Math.max(SEGMENT_WORDS_USUAL_MIN, words));
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
        "a partition's state is limited to " + mebibytes + " MiB in memory, including replaced values that are not"
            + " yet reclaimed; use more partitions");
  }
}
