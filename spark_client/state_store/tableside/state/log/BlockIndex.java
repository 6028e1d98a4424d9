package tableside.state.log;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * The blocks that contain the values not in memory: numbers them, and caches copies on the local disk.
 *
 * <p>A value's location is a `long`: the number of its block and the offset of the value in that block. Thread-safe.
 * Numbers are never reused.
 */
public final class BlockIndex {
  /** A block in the table: the version and item prefix of its delta or snapshot, its first chunk, and its codec. */
  public record Address(long version, String chunks, int first, String codec) {}

  private final LocalDisk disk;
  private final Map<Integer, Address> addresses = new HashMap<>();
  private final Map<Address, Integer> numbers = new HashMap<>();
  private final Set<String> unfinished = new HashSet<>();
  private Set<Integer> retired = new HashSet<>();
  private long retiredUpTo;
  private int last;

  public BlockIndex(LocalDisk disk) {
    this.disk = disk;
  }

  public LocalDisk disk() {
    return disk;
  }

  /** Returns the number of the block at an address; a block that is read again keeps its number. */
  public synchronized int add(Address address) {
    Integer known = numbers.get(address);
    if (known != null) {
      retired.remove(known);
      return known;
    }
    addresses.put(++last, address);
    numbers.put(address, last);
    return last;
  }

  public synchronized Address address(int number) {
    Address address = addresses.get(number);
    if (address == null) {
      throw new IllegalStateException("block " + number + " was dropped while a value in it was still needed");
    }
    return address;
  }

  /**
   * Copies a block's first `length` bytes to the local disk, unless the block has been dropped since it was requested.
   */
  public synchronized void copy(int number, byte[] block, int length) {
    if (addresses.containsKey(number)) {
      disk.put(number, block, length);
    }
  }

  /** Exempts the blocks of a delta from retirement until it is committed, because no version contains them yet. */
  synchronized void begin(String chunks) {
    unfinished.add(chunks);
  }

  synchronized void commit(String chunks) {
    unfinished.remove(chunks);
  }

  /** Drops the blocks of a delta that will not be committed. */
  synchronized void discard(String chunks) {
    if (unfinished.remove(chunks)) {
      Set<Integer> dropped = new HashSet<>();
      addresses.forEach(
          (number, address) -> {
            if (address.chunks().equals(chunks)) {
              dropped.add(number);
            }
          });
      drop(dropped);
    }
  }

  /**
   * Retires the blocks up to `version` that do not belong to the snapshot replacing them. Their disk copies are deleted
   * immediately. Their addresses remain until a later version is retired, because a slightly older version may still
   * need them.
   */
  public synchronized void retire(long version, String snapshotChunks) {
    if (version > retiredUpTo) {
      drop(retired);
      retired = new HashSet<>();
      retiredUpTo = version;
    }
    addresses.forEach(
        (number, address) -> {
          boolean replaced = address.version() <= version && !address.chunks().equals(snapshotChunks);
          if (replaced && !unfinished.contains(address.chunks())) {
            retired.add(number);
          }
        });
    disk.forget(retired);
  }

  private void drop(Set<Integer> dropped) {
    disk.forget(dropped);
    dropped.forEach(number -> numbers.remove(addresses.remove(number)));
  }

  /** The first version whose values remain readable after blocks up to `version` are retired. */
  public synchronized long firstVersionRetained(long version) {
    return version > retiredUpTo ? retiredUpTo : Long.MIN_VALUE;
  }

  public static long location(int block, int offset) {
    return (long) block << Integer.SIZE | offset;
  }

  public static int block(long location) {
    return (int) (location >>> Integer.SIZE);
  }

  public static int offset(long location) {
    return (int) location;
  }
}
