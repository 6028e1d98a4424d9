package tableside.state.memory;

/**
 * The next version of a partition's state under construction, by one thread.
 *
 * <p>If it is never frozen, it leaves only unused words in the arena, which a later compaction reclaims.
 */
public final class MutableEntries implements EntriesView {
  /** Reservations grow: concurrent writers then rarely contend for the arena, and a small change wastes little. */
  private static final int RESERVATION_WORDS_MIN = 128;

  private static final int RESERVATION_WORDS_MAX = Arena.SEGMENT_WORDS / 4;
  private static final long DEAD_WORDS_MIN = 8_192;

  private final boolean inline;
  private Entries latest;
  private Arena arena;
  private Slots slots;
  private Extents extents;
  private int size;
  private long liveWords;

  private int reservationWords = RESERVATION_WORDS_MIN;
  private int start;
  private int tail;
  private int end;

  MutableEntries(Entries from) {
    inline = from.inline();
    size = from.size();
    liveWords = from.liveWords();
    startFrom(from);
  }

  /**
   * Sets a key's value and its location outside memory. Returns the entry's address. If values are not kept in memory,
   * base and offset of the value are ignored.
   */
  public int put(
      Object keyBase, long keyOffset, int keyLength, Object valueBase, long valueOffset, int valueLength,
      long location) {
    if (valueLength < 0) {
      throw new IllegalArgumentException("a value of " + valueLength + " bytes");
    }
    int address = write(keyBase, keyOffset, keyLength, valueLength, location);
    if (inline) {
      EntryLayout.copyValue(arena.words(address), Arena.at(address), valueBase, valueOffset);
    }
    return address;
  }

  /** Sets a key's value and location to those of an entry in another view, and shares the memory of a long one. */
  public void put(EntriesView other, int address) {
    if (!share(other, address)) {
      Object bytes = other.base(address);
      put(
          bytes, other.keyOffset(address), other.keyLength(address),
          bytes, other.valueOffset(address), other.valueLength(address), other.location(address));
    }
  }

  /** Replaces the key's value by a tombstone: a value length of -1. */
  public void tombstone(Object keyBase, long keyOffset, int keyLength) {
    write(keyBase, keyOffset, keyLength, -1, 0);
  }

  /** Removes the key if it is present. */
  public void remove(Object keyBase, long keyOffset, int keyLength) {
    int slot = slots.find(arena, EntryLayout.head(keyBase, keyOffset, keyLength), keyBase, keyOffset);
    int address = slots.get(slot);
    if (address != NONE) {
      beginChange();
      replace(address);
      size--;
      slots.clear(slot, arena);
    }
  }

  /**
   * Returns the current content as a version. Changes may continue; the version does not see them.
   *
   * <p>If most of the arena is dead, the version and all later changes use a new, compacted arena. Addresses obtained
   * before are then invalid in both.
   */
  public Entries freeze() {
    if (latest == null) {
      release();
      startFrom(isMostlyDead() ? compacted() : new Entries(inline, arena, slots, extents, size, liveWords));
    }
    return latest;
  }

  /** Compacts the arena if most of it is dead. Addresses obtained before are then invalid. */
  public void reclaim() {
    if (isMostlyDead()) {
      freeze();
    }
  }

  @Override
  public boolean inline() {
    return inline;
  }

  @Override
  public int size() {
    return size;
  }

  @Override
  public Arena arena() {
    return arena;
  }

  @Override
  public Slots slots() {
    return slots;
  }

  @Override
  public Extents extents() {
    release();
    return extents;
  }

  private void startFrom(Entries version) {
    latest = version;
    arena = version.arena();
    slots = version.slots();
    extents = version.extents();
  }

  /**
   * Copies slots and extents before the first change, because they belong to the frozen version. The arena is shared.
   */
  private void beginChange() {
    if (latest != null) {
      slots = slots.copy();
      extents = extents.copy();
      latest = null;
    }
  }

  /** If this fails, for example for lack of memory, the content is unchanged. */
  private int write(Object keyBase, long keyOffset, int keyLength, int valueLength, long location) {
    beginChange();
    long head = EntryLayout.head(keyBase, keyOffset, keyLength);
    int words = EntryLayout.words(keyLength, inline ? Math.max(0, valueLength) : 0);
    int address = reserve(words);
    EntryLayout.write(arena.words(address), Arena.at(address), head, valueLength, location);
    EntryLayout.copyKey(arena.words(address), Arena.at(address), keyBase, keyOffset);
    if (!slots.hasRoom(size + 1)) {
      slots = slots.resized(size + 1, arena);
    }
    pointSlot(slots.find(arena, head, keyBase, keyOffset), address);
    commitWords(words);
    return address;
  }

  private void pointSlot(int slot, int address) {
    int replaced = slots.get(slot);
    slots.set(slot, address);
    if (replaced == NONE) {
      size++;
    } else {
      replace(replaced);
    }
  }

  private void replace(int address) {
    EntryLayout.markReplaced(arena.words(address), Arena.at(address));
    liveWords -= span(address);
  }

  /** Returns the address of `words` writable words. They belong to this version once `commitWords` has counted them. */
  private int reserve(int words) {
    if (end - tail < words) {
      release();
      Arena.Reservation block = arena.reserve(words, reservationWords);
      reservationWords = Math.min(2 * reservationWords, RESERVATION_WORDS_MAX);
      start = block.start();
      tail = start;
      end = block.end();
    }
    return tail;
  }

  private void commitWords(int words) {
    tail += words;
    liveWords += words;
  }

  /** Records the used part of the reservation as this version's extent, and returns the rest to the arena. */
  private void release() {
    if (tail > start) {
      extents.add(start, tail);
    }
    if (end > tail) {
      arena.release(tail, end);
    }
    start = tail = end = NONE;
  }

  private boolean isMostlyDead() {
    long spent = arena.spentWords() - (end - tail);
    return spent - liveWords > Math.max(DEAD_WORDS_MIN, spent / 2);
  }

  /** Copies the entries, in the same order, to a new arena. */
  private Entries compacted() {
    Arena fresh = arena.fresh(liveWords);
    MutableEntries edit = new MutableEntries(new Entries(inline, fresh, Slots.empty(size), new Extents(), 0, 0));
    for (int address = next(NONE); address != NONE; address = next(address)) {
      edit.copyFrom(this, address);
    }
    return edit.freeze();
  }

  /** Shares an entry that fills a segment. Returns false for other entries. Locations of values are never shared. */
  private boolean share(EntriesView other, int address) {
    long[] segment = other.arena().words(address);
    if (!inline || !other.inline() || !Arena.isExclusive(segment, other.span(address))) {
      return false;
    }
    beginChange();
    release();
    int shared = arena.share(segment);
    extents.add(shared, shared + segment.length);
    if (!slots.hasRoom(size + 1)) {
      slots = slots.resized(size + 1, arena);
    }
    pointSlot(slots.find(arena, EntryLayout.head(segment, 0), segment, EntryLayout.keyOffset(0)), shared);
    liveWords += segment.length;
    return true;
  }

  /** Adds an entry of another view whose key is not present here. */
  private void copyFrom(EntriesView other, int address) {
    if (share(other, address)) {
      return;
    }
    beginChange();
    int words = other.span(address);
    int copied = reserve(words);
    long head =
        EntryLayout.copy(
            other.arena().words(address), Arena.at(address), arena.words(copied), Arena.at(copied), words);
    slots.add(head, copied);
    size++;
    commitWords(words);
  }
}
