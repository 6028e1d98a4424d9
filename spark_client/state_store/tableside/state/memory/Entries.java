package tableside.state.memory;

/**
 * An immutable version of a partition's state: entries by key, in the order in which they were written.
 *
 * <p>Any number of threads may read it while others derive new versions. It consists of few objects, because it shares
 * its arena with its ancestors and descendants.
 *
 * @param liveWords the number of words in the arena that belong to this version's entries
 */
public record Entries(boolean inline, Arena arena, Slots slots, Extents extents, int size, long liveWords)
    implements EntriesView {
  /** An empty state. `inline` states whether this version and its descendants keep values in memory. */
  public static Entries empty(boolean inline) {
    return empty(inline, Arena.SEGMENTS_MAX);
  }

  public static Entries empty(boolean inline, int segmentsMax) {
    return new Entries(inline, new Arena(segmentsMax, 0), Slots.empty(0), new Extents(), 0, 0);
  }

  /** Starts the next version. Several threads may each start one; they do not see each other's changes. */
  public MutableEntries edit() {
    return new MutableEntries(this);
  }

  /** The bytes allocated for the arena, which other versions share, and for this version's slots. */
  public long memoryBytes() {
    return arena.allocatedBytes() + slots.bytes();
  }
}
