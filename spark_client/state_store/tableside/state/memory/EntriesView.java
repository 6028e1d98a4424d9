package tableside.state.memory;

/**
 * The read interface of a state, both of a finished version and of one being changed: lookup by key, and iteration.
 *
 * <p>An address identifies an entry, in this view and in every view that {@link #shares} its memory. The entry at an
 * address never changes while it is referenced, except for the location of its value.
 */
public sealed interface EntriesView permits Entries, MutableEntries {
  /** The absence of an entry. */
  int NONE = Arena.NONE;

  /** Whether values are in memory. Otherwise entries have only the value's length and location. */
  boolean inline();

  /** The number of keys, including tombstones. */
  int size();

  Arena arena();

  Slots slots();

  Extents extents();

  /** Returns the address of a key's entry, which may be a tombstone, or NONE. */
  default int find(Object keyBase, long keyOffset, int keyLength) {
    Slots slots = slots();
    return slots.get(slots.find(arena(), EntryLayout.head(keyBase, keyOffset, keyLength), keyBase, keyOffset));
  }

  /** Returns the entry written after this one: the first entry for NONE, and NONE after the last. */
  default int next(int address) {
    Arena arena = arena();
    int next = extents().from(address == NONE ? NONE : address + span(address));
    while (next != NONE && !isCurrent(arena.words(next), Arena.at(next), next)) {
      next = extents().from(next + span(next));
    }
    return next;
  }

  /** Whether addresses of the other view identify the same entries in this view. */
  default boolean shares(EntriesView other) {
    return arena() == other.arena();
  }

  /** The base object of the offsets below: the array with the key and, if values are in memory, the value. */
  default Object base(int address) {
    return arena().words(address);
  }

  default long keyOffset(int address) {
    return EntryLayout.keyOffset(Arena.at(address));
  }

  default int keyLength(int address) {
    return EntryLayout.keyLength(arena().words(address), Arena.at(address));
  }

  /** The value's length in bytes, or -1 for a tombstone. */
  default int valueLength(int address) {
    return EntryLayout.valueLength(arena().words(address), Arena.at(address));
  }

  /** The offset of the value, if values are in memory and the entry is not a tombstone. */
  default long valueOffset(int address) {
    return EntryLayout.valueOffset(arena().words(address), Arena.at(address));
  }

  /** The location of the value outside memory, as the caller has set it. */
  default long location(int address) {
    return EntryLayout.location(arena().words(address), Arena.at(address));
  }

  /**
   * Changes the location of the value. All views that share memory see the change. A compacted view has its own copy of
   * the entry and must be changed separately.
   */
  default void relocate(int address, long location) {
    EntryLayout.relocate(arena().words(address), Arena.at(address), location);
  }

  /** Whether an entry in one of the extents is current. The slots are consulted only if the entry was ever replaced. */
  private boolean isCurrent(long[] words, int at, int address) {
    return !EntryLayout.isReplaced(words, at) || slots().contains(EntryLayout.head(words, at), address);
  }

  /** How many words an entry takes. */
  default int span(int address) {
    return EntryLayout.words(keyLength(address), inline() ? Math.max(0, valueLength(address)) : 0);
  }
}
