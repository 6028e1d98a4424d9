package tableside.state;

/**
 * What can be read of a state, be it a version or one that is being made: entries, by key or one after the other.
 *
 * <p>An entry is known by its address. That is good for this view, and for every other that {@link #shares} memory with
 * it. What is at it never changes, except the value's location, for as long as anybody refers to it.
 */
abstract sealed class View permits Entries, Edit {
  /** No entry. */
  static final int NONE = Arena.NONE;

  /** Whether values are in memory; otherwise only their length and location. */
  abstract boolean inline();

  /** How many keys there are, tombstones included. */
  abstract int size();

  abstract Arena arena();

  abstract Slots slots();

  abstract Extents extents();

  /** Return the address of a key's entry, which may be a tombstone, or NONE. */
  final int find(Object keyBase, long keyOffset, int keyLength) {
    Slots slots = slots();
    return slots.get(slots.find(arena(), Entry.head(keyBase, keyOffset, keyLength), keyBase, keyOffset));
  }

  /** Return the entry that was written after this one, the first after NONE, or NONE at the end. */
  final int next(int address) {
    Arena arena = arena();
    int next = extents().from(address == NONE ? NONE : address + span(address));
    while (next != NONE && !holds(arena.words(next), Arena.at(next), next)) {
      next = extents().from(next + span(next));
    }
    return next;
  }

  /** Whether an address means the same in the other view, if it means something in both. */
  final boolean shares(View other) {
    return arena() == other.arena();
  }

  /** What holds the key and, where values are in memory, the value: the base of the offsets below. */
  final Object base(int address) {
    return arena().words(address);
  }

  final long keyOffset(int address) {
    return Entry.keyOffset(Arena.at(address));
  }

  final int keyLength(int address) {
    return Entry.keyLength(arena().words(address), Arena.at(address));
  }

  /** The value's length in bytes, or -1 for a tombstone. */
  final int valueLength(int address) {
    return Entry.valueLength(arena().words(address), Arena.at(address));
  }

  /** Where the value is, if values are in memory and it is no tombstone. */
  final long valueOffset(int address) {
    return Entry.valueOffset(arena().words(address), Arena.at(address));
  }

  /** Where the value is kept outside, in words of the caller's. */
  final long location(int address) {
    return Entry.location(arena().words(address), Arena.at(address));
  }

  /**
   * Say that the value is now kept at another place. Every view that shares memory with this one sees it. One that was
   * compacted away from it has a copy of the entry, and must be told as well.
   */
  final void relocate(int address, long location) {
    Entry.relocate(arena().words(address), Arena.at(address), location);
  }

  /** Whether what lies in one of the extents is still in. Where it was never replaced the slots need not be asked. */
  private boolean holds(long[] words, int at, int address) {
    return !Entry.isReplaced(words, at) || slots().holds(Entry.head(words, at), address);
  }

  /** How many words an entry takes. */
  final int span(int address) {
    return Entry.words(keyLength(address), inline() ? Math.max(0, valueLength(address)) : 0);
  }
}
