package tableside.state;

import java.util.Arrays;

/**
 * Which addresses are in a version: a hash table with open addressing and linear probing, in pages.
 *
 * <p>A copy shares its pages with what it was copied from, and copies a page when it first writes to it. So a version
 * costs as much as it changes. What was copied from must not be written to again.
 */
final class Slots {
  private static final int PAGE_BITS = 9;
  private static final int PAGE = 1 << PAGE_BITS;
  private static final int CAPACITY_MIN = 16;
  private static final int CAPACITY_MAX = 1 << 30;

  private final int[][] pages;
  private final int[][] shared;
  private final int mask;

  private Slots(int[][] pages, int[][] shared, int mask) {
    this.pages = pages;
    this.shared = shared;
    this.mask = mask;
  }

  /** A table without addresses, that has room for so many. */
  static Slots empty(int size) {
    int capacity = CAPACITY_MIN;
    while (!fits(size, capacity) && capacity < CAPACITY_MAX) {
      capacity *= 2;
    }
    int[][] pages = new int[Math.max(1, capacity >>> PAGE_BITS)][];
    Arrays.fill(pages, new int[Math.min(capacity, PAGE)]);
    return new Slots(pages, pages.clone(), capacity - 1);
  }

  Slots copy() {
    return new Slots(pages.clone(), pages, mask);
  }

  /** The same addresses, with room for so many. */
  Slots resized(int size, Arena arena) {
    Slots larger = empty(size);
    for (int[] page : pages) {
      for (int address : page) {
        if (address != Arena.NONE) {
          larger.add(Entry.head(arena.words(address), Arena.at(address)), address);
        }
      }
    }
    return larger;
  }

  boolean hasRoom(int size) {
    return fits(size, mask + 1);
  }

  /** What the page table and the pages take, were none shared. */
  long bytes() {
    return (mask + 1L) * Integer.BYTES + pages.length * (long) Long.BYTES;
  }

  /** What is in a slot: an address or NONE. */
  int get(int slot) {
    return pages[slot >>> PAGE_BITS][slot & PAGE - 1];
  }

  void set(int slot, int address) {
    int page = slot >>> PAGE_BITS;
    if (pages[page] == shared[page]) {
      pages[page] = pages[page].clone();
    }
    pages[page][slot & PAGE - 1] = address;
  }

  /** The slot of a key, or the empty one where it belongs. */
  int find(Arena arena, long head, Object base, long offset) {
    int slot = home(head);
    for (int address = get(slot); address != Arena.NONE; address = get(slot)) {
      if (Entry.is(arena.words(address), Arena.at(address), head, base, offset)) {
        return slot;
      }
      slot = after(slot);
    }
    return slot;
  }

  /** Whether the entry with this head at this address is in: not replaced, not removed. */
  boolean holds(long head, int address) {
    int slot = home(head);
    for (int found = get(slot); found != Arena.NONE; found = get(slot)) {
      if (found == address) {
        return true;
      }
      slot = after(slot);
    }
    return false;
  }

  /** Add what is not in. */
  void add(long head, int address) {
    int slot = home(head);
    while (get(slot) != Arena.NONE) {
      slot = after(slot);
    }
    set(slot, address);
  }

  /** Empty a slot, and move into it what would not be found any more. */
  void clear(int slot, Arena arena) {
    int hole = slot;
    int next = after(hole);
    for (int address = get(next); address != Arena.NONE; address = get(next)) {
      int home = home(Entry.head(arena.words(address), Arena.at(address)));
      if (distance(home, next) >= distance(hole, next)) {
        set(hole, address);
        hole = next;
      }
      next = after(next);
    }
    set(hole, Arena.NONE);
  }

  private int home(long head) {
    return Entry.hash(head) & mask;
  }

  private int after(int slot) {
    return slot + 1 & mask;
  }

  private int distance(int from, int to) {
    return to - from & mask;
  }

  private static boolean fits(int size, int capacity) {
    return size * 5L <= capacity * 3L;
  }
}
