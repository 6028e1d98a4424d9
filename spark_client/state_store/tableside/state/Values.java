package tableside.state;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The values of a store whose memory is bounded: those used last are here, the others in their blocks, in the table and
 * as far as there is room on the local disk.
 *
 * <p>Thread-safe: a task and maintenance may use it at once.
 */
final class Values {
  /** What an entry of the two maps takes beside its bytes, about. */
  private static final int OVERHEAD_BYTES = 96;

  private static final int BLOCKS_SHARE = 4;
  private static final int LOOK_AHEAD_BLOCKS = 64;

  private final StateLog log;
  private final Blocks blocks;
  private final int recordsMax;
  private final long bytesMax;
  private final Runnable unreadable;
  private final LinkedHashMap<Long, byte[]> values = new LinkedHashMap<>(16, 0.75f, true);
  private final LinkedHashMap<Integer, byte[]> read = new LinkedHashMap<>(16, 0.75f, true);
  private long valueBytes;
  private long readBytes;

  /**
   * @param bytesMax of values; the blocks that were read last may take what these leave, and a quarter in any case
   * @param unreadable told when a value is not where it should be, before that fails
   */
  Values(StateLog log, Blocks blocks, int recordsMax, long bytesMax, Runnable unreadable) {
    this.log = log;
    this.blocks = blocks;
    this.recordsMax = recordsMax;
    this.bytesMax = bytesMax;
    this.unreadable = unreadable;
  }

  Blocks blocks() {
    return blocks;
  }

  synchronized long memoryBytes() {
    return valueBytes + readBytes;
  }

  /** A value by its location, from memory, the local disk or the table. */
  byte[] get(long location, int length) throws IOException, InterruptedException {
    byte[] value = kept(location);
    if (value != null) {
      log.meter().cacheHits.increment();
    } else {
      value = slice(block(Blocks.block(location)), location, length);
      keep(location, value);
    }
    return value;
  }

  synchronized void keep(long location, byte[] value) {
    byte[] before = values.put(location, value);
    valueBytes += value.length - (before == null ? -OVERHEAD_BYTES : before.length);
    shrink();
  }

  /**
   * Let a snapshot's version, and those that came after it, have its values where the snapshot has put them. The blocks
   * in which they were before may then be removed from the table.
   */
  synchronized void relocate(Version version, Snapshots.Written written, List<Version> inMemory) {
    Map<Long, Long> moved = new HashMap<>();
    Entries entries = version.entries();
    int index = 0;
    for (int at = entries.next(Entries.NONE); at != Entries.NONE; at = entries.next(at)) {
      long location = written.locations()[index++];
      if (values.containsKey(entries.location(at))) {
        moved.put(entries.location(at), location);
      }
      entries.relocate(at, location);
    }
    for (Version later : inMemory) {
      if (later.lineage().passes(version.number(), version.uid()) && !later.entries().shares(entries)) {
        relocate(later.entries(), version);
      }
    }
    LinkedHashMap<Long, byte[]> before = new LinkedHashMap<>(values);
    values.clear();
    before.forEach((location, value) -> values.put(moved.getOrDefault(location, location), value));
    Lineage.Base base = written.base();
    blocks.retire(base.version(), Place.snapshotChunks(base.version(), base.snapshot()));
  }

  /** Entries in another arena, made smaller since: what has not changed since the snapshot's version is as there. */
  private void relocate(Entries later, Version version) {
    Entries entries = version.entries();
    for (int at = later.next(Entries.NONE); at != Entries.NONE; at = later.next(at)) {
      if (blocks.at(Blocks.block(later.location(at))).version() <= version.number()) {
        int same = entries.find(later.base(at), later.keyOffset(at), later.keyLength(at));
        later.relocate(at, entries.location(same));
      }
    }
  }

  /** One pass over a version in its order, which reads each block once and several together. Not thread-safe. */
  Scan scan(Entries entries) {
    return new Scan(entries);
  }

  final class Scan {
    private final Entries entries;
    private Map<Integer, byte[]> window = new HashMap<>();

    private Scan(Entries entries) {
      this.entries = entries;
    }

    byte[] value(int address) throws IOException, InterruptedException {
      long location = entries.location(address);
      int number = Blocks.block(location);
      if (!window.containsKey(number)) {
        byte[] kept = kept(location);
        if (kept != null) {
          return kept;
        }
        window = read(ahead(address, number));
      }
      return slice(window.get(number), location, entries.valueLength(address));
    }

    private Map<Integer, byte[]> read(Map<Integer, Blocks.Address> wanted) throws IOException, InterruptedException {
      Map<Integer, byte[]> found = new HashMap<>();
      Map<Integer, Blocks.Address> elsewhere = new LinkedHashMap<>();
      wanted.forEach(
          (number, address) -> {
            byte[] block = blocks.disk().get(number);
            if (block == null) {
              elsewhere.put(number, address);
            } else {
              found.put(number, block);
            }
          });
      found.putAll(fetch(elsewhere));
      return found;
    }

    /** The block with that number, and those which the entries after this one are in. */
    private Map<Integer, Blocks.Address> ahead(int address, int first) {
      Map<Integer, Blocks.Address> wanted = new LinkedHashMap<>();
      wanted.put(first, blocks.at(first));
      int latest = first;
      for (int at = address; at != Entries.NONE && wanted.size() < LOOK_AHEAD_BLOCKS; at = entries.next(at)) {
        int number = Blocks.block(entries.location(at));
        if (number != latest) {
          wanted.computeIfAbsent(number, blocks::at);
          latest = number;
        }
      }
      return wanted;
    }
  }

  private synchronized byte[] kept(long location) {
    return values.get(location);
  }

  private byte[] block(int number) throws IOException, InterruptedException {
    byte[] block = blockRead(number);
    if (block != null) {
      log.meter().cacheHits.increment();
      return block;
    }
    block = blocks.disk().get(number);
    if (block != null) {
      log.meter().diskHits.increment();
    } else {
      log.meter().cacheMisses.increment();
      block = fetch(Map.of(number, blocks.at(number))).get(number);
    }
    keepBlock(number, block);
    return block;
  }

  private Map<Integer, byte[]> fetch(Map<Integer, Blocks.Address> wanted) throws IOException, InterruptedException {
    try {
      Map<Integer, byte[]> found = log.blocks(wanted);
      found.forEach((number, block) -> blocks.copy(number, block, block.length));
      return found;
    } catch (StateUnreadable error) {
      unreadable.run();
      throw error;
    }
  }

  private synchronized byte[] blockRead(int number) {
    return read.get(number);
  }

  private synchronized void keepBlock(int number, byte[] block) {
    if (read.put(number, block) == null) {
      readBytes += block.length + OVERHEAD_BYTES;
    }
    var oldest = read.entrySet().iterator();
    long most = Math.max(bytesMax / BLOCKS_SHARE, bytesMax - valueBytes);
    while (readBytes > most && read.size() > 1) {
      readBytes -= oldest.next().getValue().length + OVERHEAD_BYTES;
      oldest.remove();
    }
  }

  private void shrink() {
    var oldest = values.entrySet().iterator();
    while ((values.size() > recordsMax || valueBytes > bytesMax) && oldest.hasNext()) {
      valueBytes -= oldest.next().getValue().length + OVERHEAD_BYTES;
      oldest.remove();
    }
  }

  private static byte[] slice(byte[] block, long location, int length) throws StateUnreadable {
    int offset = Blocks.offset(location);
    if (offset < 0 || length > block.length - offset) {
      throw new StateUnreadable("a value lies outside its block");
    }
    return Arrays.copyOfRange(block, offset, offset + length);
  }
}
