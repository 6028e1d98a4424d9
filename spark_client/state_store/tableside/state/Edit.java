package tableside.state;

/**
 * The next version of a partition's state while it is being made, by one thread.
 *
 * <p>Where it is not frozen it leaves nothing behind but words in the arena that a later compaction reclaims.
 */
final class Edit extends View {
  /** Blocks grow, so that edits at the same time do not take turns too often, and little is lost with a small one. */
  private static final int BLOCK_WORDS_MIN = 128;

  private static final int BLOCK_WORDS_MAX = Arena.SEGMENT_WORDS / 4;
  private static final long DEAD_WORDS_MIN = 8_192;

  private final boolean inline;
  private Entries latest;
  private Arena arena;
  private Slots slots;
  private Extents extents;
  private int size;
  private long liveWords;

  private int blockWords = BLOCK_WORDS_MIN;
  private int start;
  private int tail;
  private int end;

  Edit(Entries from) {
    inline = from.inline();
    size = from.size();
    liveWords = from.liveWords();
    follow(from);
  }

  /**
   * Set a key's value, and where it is kept outside; return its address. Base and offset of the value are not looked at
   * where values are not kept in memory.
   */
  int put(
      Object keyBase,
      long keyOffset,
      int keyLength,
      Object valueBase,
      long valueOffset,
      int valueLength,
      long location) {
    if (valueLength < 0) {
      throw new IllegalArgumentException("a value of " + valueLength + " bytes");
    }
    int address = write(keyBase, keyOffset, keyLength, valueLength, location);
    if (inline) {
      Entry.copyValue(arena.words(address), Arena.at(address), valueBase, valueOffset);
    }
    return address;
  }

  /** Keep the key, but without a value: its length is -1. */
  void tombstone(Object keyBase, long keyOffset, int keyLength) {
    write(keyBase, keyOffset, keyLength, -1, 0);
  }

  /** Take out the key, if it is in. */
  void remove(Object keyBase, long keyOffset, int keyLength) {
    int slot = slots.find(arena, Entry.head(keyBase, keyOffset, keyLength), keyBase, keyOffset);
    int address = slots.get(slot);
    if (address != NONE) {
      change();
      replace(address);
      size--;
      slots.clear(slot, arena);
    }
  }

  /**
   * Return what is there now as a version. The edit may go on; later changes are not in it.
   *
   * <p>Where most of the arena is dead the version begins a new one, and so does what the edit does from here on: no
   * address from before is good for either.
   */
  Entries freeze() {
    if (latest == null) {
      release();
      follow(mostIsDead() ? compacted() : new Entries(inline, arena, slots, extents, size, liveWords));
    }
    return latest;
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
    release();
    return extents;
  }

  private void follow(Entries version) {
    latest = version;
    arena = version.arena();
    slots = version.slots();
    extents = version.extents();
  }

  /** From the first change on nothing but the arena is the version's that this follows. */
  private void change() {
    if (latest != null) {
      slots = slots.copy();
      extents = extents.copy();
      latest = null;
    }
  }

  /** Where this fails, as for want of memory, nothing has changed. */
  private int write(Object keyBase, long keyOffset, int keyLength, int valueLength, long location) {
    change();
    long head = Entry.head(keyBase, keyOffset, keyLength);
    int words = Entry.words(keyLength, inline ? Math.max(0, valueLength) : 0);
    int address = room(words);
    Entry.write(arena.words(address), Arena.at(address), head, valueLength, location);
    Entry.copyKey(arena.words(address), Arena.at(address), keyBase, keyOffset);
    if (!slots.hasRoom(size + 1)) {
      slots = slots.resized(size + 1, arena);
    }
    point(slots.find(arena, head, keyBase, keyOffset), address);
    extend(words);
    return address;
  }

  private void point(int slot, int address) {
    int replaced = slots.get(slot);
    slots.set(slot, address);
    if (replaced == NONE) {
      size++;
    } else {
      replace(replaced);
    }
  }

  private void replace(int address) {
    Entry.replace(arena.words(address), Arena.at(address));
    liveWords -= span(address);
  }

  /** The address of so many words to write to. They are this version's once it is extended by them. */
  private int room(int words) {
    if (end - tail < words) {
      release();
      Arena.Block block = arena.reserve(words, blockWords);
      blockWords = Math.min(2 * blockWords, BLOCK_WORDS_MAX);
      start = block.start();
      tail = start;
      end = block.end();
    }
    return tail;
  }

  private void extend(int words) {
    tail += words;
    liveWords += words;
  }

  /** Give back what of the block is not used. What is used belongs to this version from now on. */
  private void release() {
    if (tail > start) {
      extents.add(start, tail);
    }
    if (end > tail) {
      arena.release(tail, end);
    }
    start = tail = end = NONE;
  }

  private boolean mostIsDead() {
    long spent = arena.spentWords();
    return spent - liveWords > Math.max(DEAD_WORDS_MIN, spent / 2);
  }

  /** The same entries in the same order, in an arena of their own. */
  private Entries compacted() {
    Arena fresh = arena.fresh(liveWords);
    Edit edit = new Edit(new Entries(inline, fresh, Slots.empty(size), new Extents(), 0, 0));
    for (int address = next(NONE); address != NONE; address = next(address)) {
      edit.take(this, address);
    }
    return edit.freeze();
  }

  /** Add another's entry, whose key is not in. */
  private void take(View other, int address) {
    change();
    int words = other.span(address);
    int taken = room(words);
    long head = Entry.copy(other.arena().words(address), Arena.at(address), arena.words(taken), Arena.at(taken), words);
    slots.add(head, taken);
    size++;
    extend(words);
  }
}
