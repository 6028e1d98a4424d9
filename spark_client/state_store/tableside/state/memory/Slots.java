package tableside.state.memory;

import java.util.Arrays;

/**
 * The addresses of a version's entries: a hash table with open addressing and linear probing, divided into pages.
 *
 * <p>A copy shares its pages with the original, and copies a page when it first writes to it. The cost of a version is
 * therefore proportional to its changes. The original must not be modified after it is copied.
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

  /** Creates an empty table with room for `size` addresses. */
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

  /** Copies the addresses to a table with room for `size`. */
  Slots resized(int size, Arena arena) {
    Slots larger = empty(size);
    for (int[] page : pages) {
      for (int address : page) {
        if (address != Arena.NONE) {
          larger.add(EntryLayout.head(arena.words(address), Arena.at(address)), address);
        }
      }
    }
    return larger;
  }

  boolean hasRoom(int size) {
    return fits(size, mask + 1);
  }

  /** The size of the page table and all pages, as if none were shared. */
  long bytes() {
    return (mask + 1L) * Integer.BYTES + pages.length * (long) Long.BYTES;
  }

  /** The address in a slot, or NONE. */
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

  /** The slot of a key, or the empty slot where it would be inserted. */
  int find(Arena arena, long head, Object base, long offset) {
    int slot = home(head);
    for (int address = get(slot); address != Arena.NONE; address = get(slot)) {
      if (EntryLayout.matches(arena.words(address), Arena.at(address), head, base, offset)) {
        return slot;
      }
      slot = after(slot);
    }
    return slot;
  }

  /** Whether this version contains the entry with this head at this address: it is neither replaced nor removed. */
  boolean contains(long head, int address) {
    int slot = home(head);
    for (int found = get(slot); found != Arena.NONE; found = get(slot)) {
      if (found == address) {
        return true;
      }
      slot = after(slot);
    }
    return false;
  }

  /** Adds an address whose key is not present. */
  void add(long head, int address) {
    int slot = home(head);
    while (get(slot) != Arena.NONE) {
      slot = after(slot);
    }
    set(slot, address);
  }

  /** Empties a slot, and moves entries into the gap that a lookup would no longer find. */
  void clear(int slot, Arena arena) {
    int hole = slot;
    int next = after(hole);
    for (int address = get(next); address != Arena.NONE; address = get(next)) {
      int home = home(EntryLayout.head(arena.words(address), Arena.at(address)));
      if (distance(home, next) >= distance(hole, next)) {
        set(hole, address);
        hole = next;
      }
      next = after(next);
    }
    set(hole, Arena.NONE);
  }

  private int home(long head) {
    return EntryLayout.hash(head) & mask;
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
