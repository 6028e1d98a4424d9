package tableside.state.memory;

import java.util.Arrays;

/**
 * The ranges of an arena that contain a version's entries, in order. The gaps belong to other versions or are unused.
 */
final class Extents {
  private int[] bounds;
  private int count;

  Extents() {
    this(new int[2], 0);
  }

  private Extents(int[] bounds, int count) {
    this.bounds = bounds;
    this.count = count;
  }

  Extents copy() {
    return new Extents(Arrays.copyOf(bounds, Math.max(2, count)), count);
  }

  /** Appends a range after all others, and merges it with the last if they are adjacent. */
  void add(int start, int end) {
    if (count > 0 && bounds[count - 1] == start) {
      bounds[count - 1] = end;
      return;
    }
    if (count == bounds.length) {
      bounds = Arrays.copyOf(bounds, 2 * count);
    }
    bounds[count++] = start;
    bounds[count++] = end;
  }

  /** The first address that is in a range and not below `address`, or NONE. */
  int from(int address) {
    int low = 0;
    int high = count / 2;
    while (low < high) {
      int middle = low + high >>> 1;
      if (bounds[2 * middle + 1] > address) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return 2 * low == count ? Arena.NONE : Math.max(address, bounds[2 * low]);
  }
}
