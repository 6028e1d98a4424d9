package tableside.state;

/**
 * An immutable version of a partition's state: entries by key, in the order in which they were written.
 *
 * <p>Any thread may read it, any number at once, while others make new versions from it. It costs few objects: the
 * entries are in an arena that it shares with the versions it came from and those that come from it.
 */
final class Entries extends View {
  private final boolean inline;
  private final Arena arena;
  private final Slots slots;
  private final Extents extents;
  private final int size;
  private final long liveWords;

  Entries(boolean inline, Arena arena, Slots slots, Extents extents, int size, long liveWords) {
    this.inline = inline;
    this.arena = arena;
    this.slots = slots;
    this.extents = extents;
    this.size = size;
    this.liveWords = liveWords;
  }

  /** The state without entries. `inline` says whether it and what comes from it keep values in memory. */
  static Entries empty(boolean inline) {
    return empty(inline, Arena.SEGMENTS_MAX);
  }

  static Entries empty(boolean inline, int segmentsMax) {
    return new Entries(inline, new Arena(segmentsMax, 0), Slots.empty(0), new Extents(), 0, 0);
  }

  /** Begin the next version. Several may be begun, by several threads: none sees what another does. */
  Edit edit() {
    return new Edit(this);
  }

  /** What is allocated for this version and those that share memory with it, and for its slots. */
  long memoryBytes() {
    return arena.allocatedBytes() + slots.bytes();
  }

  /** How many words of the arena are this version's entries. */
  long liveWords() {
    return liveWords;
  }

  @Override
  boolean inline() {
    return inline;
  }

  @Override
  int size() {
    return size;
  }

  @Override
  Arena arena() {
    return arena;
  }

  @Override
  Slots slots() {
    return slots;
  }

  @Override
  Extents extents() {
    return extents;
  }
}
