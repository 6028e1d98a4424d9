package tableside.state;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import tableside.state.log.BlockIndex;
import tableside.state.log.BlockReader;
import tableside.state.log.Lineage;
import tableside.state.log.StateLog;
import tableside.state.log.StateUnreadable;
import tableside.state.log.StoreKeys;
import tableside.state.memory.Entries;

/**
 * The values of a store with bounded memory. Recently used values are in memory, all others in their blocks in the
 * table and, as far as space allows, on the local disk.
 *
 * <p>Thread-safe: a task and maintenance may use it concurrently.
 */
final class ValueCache {
  /** The approximate size of an entry of the two maps, without its bytes. */
  private static final int OVERHEAD_BYTES = 96;

  private static final int BLOCK_BYTES_DIVISOR = 4;
  private static final int READ_AHEAD_BLOCKS_MAX = 64;

  private final StateLog log;
  private final BlockIndex blocks;
  private final int recordsMax;
  private final long bytesMax;
  private final Runnable onUnreadable;
  private final LinkedHashMap<Long, byte[]> values = new LinkedHashMap<>(16, 0.75f, true);
  private final LinkedHashMap<Integer, byte[]> recentBlocks = new LinkedHashMap<>(16, 0.75f, true);
  private long valueBytes;
  private long blockBytes;

  /**
   * @param bytesMax the limit for values; recently read blocks may use the space that values leave, and a quarter of
   *     the limit in any case
   * @param onUnreadable runs before the failure is thrown if a value is missing from its block or damaged
   */
  ValueCache(StateLog log, BlockIndex blocks, int recordsMax, long bytesMax, Runnable onUnreadable) {
    this.log = log;
    this.blocks = blocks;
    this.recordsMax = recordsMax;
    this.bytesMax = bytesMax;
    this.onUnreadable = onUnreadable;
  }

  BlockIndex blocks() {
    return blocks;
  }

  synchronized long memoryBytes() {
    return valueBytes + blockBytes;
  }

  /** Returns a value by its location, from memory, the local disk or the table. */
  byte[] get(long location, int length) throws IOException, InterruptedException {
    byte[] value = cachedValue(location);
    if (value != null) {
      log.counters().cacheHits.increment();
    } else {
      value = slice(block(BlockIndex.block(location)), location, length);
      put(location, value);
    }
    return value;
  }

  synchronized void put(long location, byte[] value) {
    byte[] before = values.put(location, value);
    valueBytes += value.length - (before == null ? -OVERHEAD_BYTES : before.length);
    evict();
  }

  /**
   * Changes the locations of the values of a snapshot's version, and of later versions, to those in the snapshot. The
   * blocks that contained the values before may then be removed from the table.
   */
  synchronized void relocate(StateVersion version, SnapshotWriter.Written written, List<StateVersion> inMemory) {
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
    for (StateVersion later : inMemory) {
      if (later.lineage().contains(version.number(), version.uid()) && !later.entries().shares(entries)) {
        relocate(later.entries(), version);
      }
    }
    LinkedHashMap<Long, byte[]> before = new LinkedHashMap<>(values);
    values.clear();
    before.forEach((location, value) -> values.put(moved.getOrDefault(location, location), value));
    Lineage.Base base = written.base();
    blocks.retire(base.version(), StoreKeys.snapshotChunks(base.version(), base.snapshot()));
  }

  /**
   * Changes locations in a compacted arena. An entry unchanged since the snapshot's version has the snapshot's
   * location.
   */
  private void relocate(Entries later, StateVersion version) {
    Entries entries = version.entries();
    for (int at = later.next(Entries.NONE); at != Entries.NONE; at = later.next(at)) {
      if (blocks.address(BlockIndex.block(later.location(at))).version() <= version.number()) {
        int same = entries.find(later.base(at), later.keyOffset(at), later.keyLength(at));
        later.relocate(at, entries.location(same));
      }
    }
  }

  /**
   * Starts one pass over a version in order, which reads each block once and several blocks per request. Not
   * thread-safe.
   */
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
      int number = BlockIndex.block(location);
      if (!window.containsKey(number)) {
        byte[] cached = cachedValue(location);
        if (cached != null) {
          return cached;
        }
        window = readBlocks(readAhead(address, number));
      }
      return slice(window.get(number), location, entries.valueLength(address));
    }

    private Map<Integer, byte[]> readBlocks(Map<Integer, BlockIndex.Address> addresses)
        throws IOException, InterruptedException {
      Map<Integer, byte[]> result = new HashMap<>();
      Map<Integer, BlockIndex.Address> missing = new LinkedHashMap<>();
      addresses.forEach(
          (number, address) -> {
            byte[] block = blocks.disk().get(number);
            if (block == null) {
              missing.put(number, address);
            } else {
              result.put(number, block);
            }
          });
      result.putAll(fetch(missing));
      return result;
    }

    /** The block with this number, and the blocks of the entries after this one. */
    private Map<Integer, BlockIndex.Address> readAhead(int address, int first) {
      Map<Integer, BlockIndex.Address> addresses = new LinkedHashMap<>();
      addresses.put(first, blocks.address(first));
      int latest = first;
      for (int at = address; at != Entries.NONE && addresses.size() < READ_AHEAD_BLOCKS_MAX; at = entries.next(at)) {
        int number = BlockIndex.block(entries.location(at));
        if (number != latest) {
          addresses.computeIfAbsent(number, blocks::address);
          latest = number;
        }
      }
      return addresses;
    }
  }

  private synchronized byte[] cachedValue(long location) {
    return values.get(location);
  }

  private byte[] block(int number) throws IOException, InterruptedException {
    byte[] block = cachedBlock(number);
    if (block != null) {
      log.counters().cacheHits.increment();
      return block;
    }
    block = blocks.disk().get(number);
    if (block != null) {
      log.counters().diskHits.increment();
    } else {
      log.counters().cacheMisses.increment();
      block = fetch(Map.of(number, blocks.address(number))).get(number);
    }
    putBlock(number, block);
    return block;
  }

  private Map<Integer, byte[]> fetch(Map<Integer, BlockIndex.Address> addresses)
      throws IOException, InterruptedException {
    try {
      Map<Integer, byte[]> result = new BlockReader(log).read(addresses);
      result.forEach((number, block) -> blocks.copy(number, block, block.length));
      return result;
    } catch (StateUnreadable error) {
      onUnreadable.run();
      throw error;
    }
  }

  private synchronized byte[] cachedBlock(int number) {
    return recentBlocks.get(number);
  }

  private synchronized void putBlock(int number, byte[] block) {
    if (recentBlocks.put(number, block) == null) {
      blockBytes += block.length + OVERHEAD_BYTES;
    }
    var oldest = recentBlocks.entrySet().iterator();
    long blockBytesMax = Math.max(bytesMax / BLOCK_BYTES_DIVISOR, bytesMax - valueBytes);
    while (blockBytes > blockBytesMax && recentBlocks.size() > 1) {
      blockBytes -= oldest.next().getValue().length + OVERHEAD_BYTES;
      oldest.remove();
    }
  }

  private void evict() {
    var oldest = values.entrySet().iterator();
    while ((values.size() > recordsMax || valueBytes > bytesMax) && oldest.hasNext()) {
      valueBytes -= oldest.next().getValue().length + OVERHEAD_BYTES;
      oldest.remove();
    }
  }

  private static byte[] slice(byte[] block, long location, int length) throws StateUnreadable {
    int offset = BlockIndex.offset(location);
    if (offset < 0 || length > block.length - offset) {
      throw new StateUnreadable("a value exceeds its block");
    }
    return Arrays.copyOfRange(block, offset, offset + length);
  }
}
