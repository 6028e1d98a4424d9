package tableside.state;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * The blocks in which values are kept that are not in memory, each under a number, with the copies of them that are on
 * the local disk. A value's location is the number of its block and where it begins therein, in one `long`.
 *
 * <p>Thread-safe. Numbers are not used again.
 */
final class Blocks {
  /** A block in the table: of which version's delta or snapshot, and its first chunk. */
  record Address(long version, String chunks, int first, String codec) {}

  private final LocalDisk disk;
  private final Map<Integer, Address> addresses = new HashMap<>();
  private final Map<Address, Integer> numbers = new HashMap<>();
  private Set<Integer> retired = new HashSet<>();
  private long retiredUpTo;
  private int last;

  Blocks(LocalDisk disk) {
    this.disk = disk;
  }

  LocalDisk disk() {
    return disk;
  }

  /** The number of the block at an address: the one it has already if it is read again. */
  synchronized int add(Address address) {
    Integer known = numbers.get(address);
    if (known != null) {
      retired.remove(known);
      return known;
    }
    addresses.put(++last, address);
    numbers.put(address, last);
    return last;
  }

  synchronized Address at(int number) {
    Address address = addresses.get(number);
    if (address == null) {
      throw new IllegalStateException("block " + number + " was forgotten while a value in it was still needed");
    }
    return address;
  }

  /** Keep a copy of a block's first `length` bytes on the local disk, unless it was forgotten since it was asked for. */
  synchronized void copy(int number, byte[] block, int length) {
    if (addresses.containsKey(number)) {
      disk.put(number, block, length);
    }
  }

  /**
   * Forget the blocks up to that version which are not of the snapshot that replaces them, but not before a later version
   * is retired: one that is a little older may still need them. Their copies go at once.
   */
  synchronized void retire(long version, String snapshotChunks) {
    if (version > retiredUpTo) {
      disk.forget(retired);
      retired.forEach(number -> numbers.remove(addresses.remove(number)));
      retired = new HashSet<>();
      retiredUpTo = version;
    }
    addresses.forEach(
        (number, address) -> {
          if (address.version() <= version && !address.chunks().equals(snapshotChunks)) {
            retired.add(number);
          }
        });
    disk.forget(retired);
  }

  /** The first version whose values are still there once blocks up to `version` are retired. */
  synchronized long forgottenUpTo(long version) {
    return version > retiredUpTo ? retiredUpTo : Long.MIN_VALUE;
  }

  static long location(int block, int offset) {
    return (long) block << Integer.SIZE | offset;
  }

  static int block(long location) {
    return (int) (location >>> Integer.SIZE);
  }

  static int offset(long location) {
    return (int) location;
  }
}
