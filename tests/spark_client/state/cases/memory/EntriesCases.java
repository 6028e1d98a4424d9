package tableside.state.memory;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.unsafe.Platform;
import tableside.state.Check;

/** A partition's state in memory, compared with a map of the JDK, and its behavior beyond that of a map. */
public final class EntriesCases {
  private static final int VERSIONS_KEPT = 6;

  /** A version and its expected content. */
  private record Kept(Entries version, MapOfEntries map) {}

  private EntriesCases() {}

  /**
   * Derives versions from new and old versions; some edits are abandoned or frozen half way. After each step, all kept
   * versions are unchanged. Returns the number of compactions.
   */
  public static int randomChanges(JsonNode arguments) {
    Random random = new Random(arguments.get("seed").asLong());
    List<byte[]> keys = MapOfEntries.keys(arguments.get("keys").asInt());
    int valueMax = arguments.get("value_max").asInt();
    List<Kept> kept = new ArrayList<>();
    kept.add(new Kept(Entries.empty(arguments.get("inline").asBoolean()), new MapOfEntries()));
    int compacted = 0;
    for (int round = 0; round < arguments.get("rounds").asInt(); round++) {
      Kept from = kept.get(random.nextInt(3) > 0 ? kept.size() - 1 : random.nextInt(kept.size()));
      MutableEntries edit = from.version().edit();
      MapOfEntries map = from.map().copy();
      for (int change = random.nextInt(2 * keys.size()); change >= 0; change--) {
        map.change(edit, random, keys, valueMax);
        if (random.nextInt(2 * keys.size()) == 0) {
          kept.add(new Kept(edit.freeze(), map.copy()));
        }
      }
      map.check(edit, keys);
      if (random.nextInt(4) > 0) {
        Entries version = edit.freeze();
        kept.add(new Kept(version, map));
        compacted += version.shares(from.version()) ? 0 : 1;
      }
      while (kept.size() > VERSIONS_KEPT) {
        kept.remove(random.nextInt(kept.size()));
      }
      kept.forEach(one -> one.map().check(one.version(), keys));
    }
    return compacted;
  }

  /** Continues several open edits in turns. Returns the number of versions that share memory with the first. */
  public static int editsInTurns(JsonNode arguments) {
    Random random = new Random(arguments.get("seed").asLong());
    List<byte[]> keys = MapOfEntries.keys(50);
    int sharing = 0;
    for (int time = 0; time < 20; time++) {
      sharing += editsInTurns(random, keys, Entries.empty(true));
    }
    return sharing;
  }

  private static int editsInTurns(Random random, List<byte[]> keys, Entries empty) {
    MutableEntries[] edits = {empty.edit(), empty.edit(), empty.edit()};
    MapOfEntries[] maps = {new MapOfEntries(), new MapOfEntries(), new MapOfEntries()};
    int sharing = 0;
    for (int turn = 0; turn < 500; turn++) {
      int number = random.nextInt(edits.length);
      maps[number].change(edits[number], random, keys, 20);
      if (random.nextInt(20) == 0) {
        Entries version = edits[number].freeze();
        sharing += version.shares(empty) ? 1 : 0;
        edits[number] = random.nextBoolean() ? edits[number] : version.edit();
        for (int other = 0; other < edits.length; other++) {
          maps[other].check(edits[other], keys);
        }
      }
    }
    return sharing;
  }

  /** Two threads each edit one version, while a third thread reads it. */
  public static void twoThreadsEditOneVersion(JsonNode arguments) throws Exception {
    List<byte[]> keys = MapOfEntries.keys(2_000);
    Random random = new Random(arguments.get("seed").asLong());
    MutableEntries first = Entries.empty(true).edit();
    MapOfEntries map = new MapOfEntries();
    for (int change = 0; change < 3_000; change++) {
      map.change(first, random, keys, 200);
    }
    Entries version = first.freeze();
    CyclicBarrier together = new CyclicBarrier(3);
    ExecutorService threads = Executors.newFixedThreadPool(3);
    try {
      List<Future<?>> all = new ArrayList<>();
      for (long seed : new long[] {random.nextLong(), random.nextLong()}) {
        all.add(threads.submit(() -> edited(together, new Kept(version, map.copy()), new Random(seed), keys)));
      }
      all.add(threads.submit(() -> read(together, new Kept(version, map), keys)));
      for (Future<?> one : all) {
        one.get();
      }
    } finally {
      threads.shutdownNow();
    }
    map.check(version, keys);
  }

  private static Void edited(CyclicBarrier together, Kept from, Random random, List<byte[]> keys) throws Exception {
    Entries version = from.version();
    List<Kept> made = new ArrayList<>();
    together.await();
    for (int commit = 0; commit < 5_000; commit++) {
      MutableEntries edit = version.edit();
      for (int change = random.nextInt(10); change >= 0; change--) {
        from.map().change(edit, random, keys, 200);
      }
      version = edit.freeze();
      if (commit % 500 == 499) {
        made.add(new Kept(version, from.map().copy()));
      }
    }
    made.forEach(one -> one.map().check(one.version(), keys));
    return null;
  }

  private static Void read(CyclicBarrier together, Kept kept, List<byte[]> keys) throws Exception {
    together.await();
    for (int time = 0; time < 20; time++) {
      kept.map().check(kept.version(), keys);
    }
    return null;
  }

  /** Repeats the case, because a race shows only if both threads are active. */
  public static void threadsReserveDisjointWords() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(2);
    try {
      for (int time = 0; time < 8; time++) {
        Arena arena = new Arena(Arena.SEGMENTS_MAX, 0);
        CyclicBarrier together = new CyclicBarrier(2);
        Future<BitSet> one = threads.submit(() -> reserved(together, arena));
        Future<BitSet> other = threads.submit(() -> reserved(together, arena));
        Check.equal(one.get().cardinality() + other.get().cardinality(), 1_000_000);
        Check.that(!one.get().intersects(other.get()), "reservations are disjoint");
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static BitSet reserved(CyclicBarrier together, Arena arena) throws Exception {
    BitSet addresses = new BitSet();
    together.await();
    for (int time = 0; time < 500_000; time++) {
      Arena.Reservation block = arena.reserve(1, 2);
      addresses.set(block.start());
      if (block.end() - block.start() == 2) {
        arena.release(block.start() + 1, block.end());
      }
    }
    return addresses;
  }

  public static void keysWithEqualHashesAreDistinct() {
    Random random = new Random(1);
    Map<Long, byte[]> seen = new HashMap<>();
    List<byte[]> keys = new ArrayList<>();
    for (int number = 0; number < 400_000; number++) {
      byte[] key = ByteBuffer.allocate(8).putLong(random.nextLong()).array();
      byte[] other = seen.put(EntryLayout.head(key, Platform.BYTE_ARRAY_OFFSET, key.length), key);
      if (other != null) {
        keys.add(other);
        keys.add(key);
      }
    }
    Check.that(keys.size() >= 4, "some keys have the hash of another");
    MapOfEntries map = new MapOfEntries();
    MutableEntries edit = Entries.empty(true).edit();
    for (byte[] key : keys) {
      map.check(edit, keys);
      map.put(edit, key, key, 0);
    }
    for (byte[] key : keys) {
      map.check(edit, keys);
      map.remove(edit, key);
    }
    map.check(edit.freeze(), keys);
  }

  public static void manyKeysAreFoundWhileTheyComeAndGo() {
    List<byte[]> keys = MapOfEntries.keys(100_000);
    MapOfEntries map = new MapOfEntries();
    MutableEntries edit = Entries.empty(true).edit();
    for (byte[] key : keys) {
      map.put(edit, key, key, 0);
    }
    Entries all = edit.freeze();
    MapOfEntries mapOfAll = map.copy();
    for (int number = 0; number < keys.size(); number++) {
      if (number % 3 > 0) {
        map.remove(edit, keys.get(number));
      }
    }
    map.check(edit, keys);
    Entries third = edit.freeze();
    map.check(third, keys);
    mapOfAll.check(all, keys);
    Check.that(third.memoryBytes() < all.memoryBytes() / 2, "memory shrinks with the content");
    keys.forEach(key -> map.remove(edit, key));
    map.check(edit.freeze(), keys);
    Check.that(edit.freeze().memoryBytes() < 8_192, "an empty state needs little memory");
  }

  public static void largeEntriesHaveTheirOwnSegment() {
    Random random = new Random(2);
    List<byte[]> keys = MapOfEntries.keys(40);
    MapOfEntries map = new MapOfEntries();
    Entries version = Entries.empty(true);
    List<Kept> kept = new ArrayList<>();
    for (int round = 0; round < 40; round++) {
      MutableEntries edit = version.edit();
      int length = round % 4 == 0 ? (1 << 20) - 24 + random.nextInt(64) : random.nextInt(3 << 20);
      map.put(edit, keys.get(random.nextInt(keys.size())), new byte[length], round);
      map.put(edit, keys.get(random.nextInt(keys.size())), new byte[random.nextInt(100)], round);
      map.remove(edit, keys.get(random.nextInt(keys.size())));
      version = edit.freeze();
      kept.add(new Kept(version, map.copy()));
    }
    kept.forEach(one -> one.map().check(one.version(), keys));
  }

  public static void aLongEntryOfAnotherViewIsShared() {
    List<byte[]> keys = MapOfEntries.keys(3);
    MapOfEntries map = new MapOfEntries();
    MapOfEntries mapOfChanges = new MapOfEntries();
    MutableEntries edit = Entries.empty(true).edit();
    MutableEntries changes = Entries.empty(true).edit();
    for (int length : new int[] {9, 1 << 20}) {
      for (byte[] key : keys) {
        map.put(edit, key, new byte[40], 1);
        byte[] value = new byte[length];
        Arrays.fill(value, key.length == 0 ? 7 : key[key.length - 1]);
        mapOfChanges.put(changes, key, value, length);
        edit.put(changes, MapOfEntries.find(changes, key));
        map.put(Entries.empty(true).edit(), key, value, length);
        boolean shared = edit.base(MapOfEntries.find(edit, key)) == changes.base(MapOfEntries.find(changes, key));
        Check.equal(shared, length > 9);
      }
    }
    map.check(edit, keys);
    Entries both = edit.freeze();
    map.put(edit, keys.get(1), new byte[3], 5);
    mapOfChanges.remove(changes, keys.get(2));
    map.check(edit, keys);
    mapOfChanges.check(changes, keys);
    Check.equal(MapOfEntries.value(both, MapOfEntries.find(both, keys.get(1))).length, 1 << 20);
  }

  /** G1 would give a larger array its own regions, which take twice the memory. */
  public static void fourSegmentsFitInTheSmallestRegion() {
    MutableEntries edit = Entries.empty(true).edit();
    long longest = 0;
    for (int number = 0; number < 20_000; number++) {
      int address = put(edit, ByteBuffer.allocate(4).putInt(number).array(), new byte[50], 0);
      longest = Math.max(longest, ((long[]) edit.base(address)).length);
    }
    Check.that(longest * Long.BYTES > 250_000, "segments are as long as they may be");
    Check.that(4 * (longest * Long.BYTES + 24) <= 1 << 20, "four go into a region, with their headers");
  }

  public static void anEditGoesOnAfterItWasFrozen() {
    List<byte[]> keys = MapOfEntries.keys(3);
    MapOfEntries map = new MapOfEntries();
    MutableEntries edit = Entries.empty(true).edit();
    map.put(edit, keys.get(0), new byte[9], 1);
    map.put(edit, keys.get(1), new byte[0], 2);
    Entries first = edit.freeze();
    MapOfEntries mapOfFirst = map.copy();
    Check.that(first == edit.freeze(), "what has not changed is the same version");
    Check.that(first == first.edit().freeze(), "what has not changed is the same version");
    int address = first.next(EntriesView.NONE);
    map.put(edit, keys.get(0), new byte[1], 3);
    map.remove(edit, keys.get(1));
    map.tombstone(edit, keys.get(2));
    mapOfFirst.check(first, keys);
    map.check(edit, keys);
    map.check(edit.freeze(), keys);
    mapOfFirst.check(first, keys);
    Check.equal(first.valueLength(first.next(address)), 0);
    Check.equal(first.next(first.next(address)), EntriesView.NONE);
    edit.remove(keys.get(0), Platform.BYTE_ARRAY_OFFSET, 0);
    edit.remove(keys.get(0), Platform.BYTE_ARRAY_OFFSET, 0);
    Check.equal(edit.size(), 1);
  }

  public static void aReturnedRowIsUnchanged() {
    byte[] key = {1};
    MutableEntries edit = Entries.empty(true).edit();
    int address = put(edit, key, new byte[] {1, 2, 3}, 0);
    Object base = edit.base(address);
    long offset = edit.valueOffset(address);
    Entries before = edit.freeze();
    for (int time = 0; time < 100; time++) {
      put(edit, key, new byte[10_000], 0);
      edit.freeze();
    }
    Check.that(!edit.shares(before), "the arena has been compacted");
    Check.equal(Platform.getByte(base, offset + 2), (byte) 3);
  }

  public static void allVersionsSeeARelocation() {
    byte[] key = {1};
    byte[] value = {7, 8, 9};
    MutableEntries edit = Entries.empty(true).edit();
    int address = put(edit, key, value, 1L << 40);
    Entries first = edit.freeze();
    put(edit, new byte[] {2}, value, 5);
    Entries second = edit.freeze();
    put(edit, key, value, 6);
    Entries third = edit.freeze();
    first.relocate(address, -1L << 33);
    Check.that(first.shares(second) && second.shares(third) && third.shares(edit), "all share memory");
    Check.equal(first.location(address), -1L << 33);
    Check.equal(second.location(MapOfEntries.find(second, key)), -1L << 33);
    Check.equal(third.location(MapOfEntries.find(third, key)), 6L);
    Check.equal(ByteBuffer.wrap(MapOfEntries.value(second, address)), ByteBuffer.wrap(value));
    Check.equal(second.location(MapOfEntries.find(second, new byte[] {2})), 5L);
  }

  /** One thread relocates all entries repeatedly while another creates and compacts versions. */
  public static void locationsAreReadAtomically() throws Exception {
    MutableEntries edit = Entries.empty(false).edit();
    byte[] key = {1};
    int address = put(edit, key, new byte[0], 0);
    Entries version = edit.freeze();
    Thread writer =
        new Thread(() -> {
          for (long time = 0; !Thread.currentThread().isInterrupted(); time++) {
            version.relocate(address, time % 2 == 0 ? 0 : -1);
          }
        });
    writer.start();
    try {
      for (int time = 0; time < 2_000_000; time++) {
        long location = version.location(address);
        Check.that(location == 0 || location == -1, "a location is one of the two that were set");
      }
    } finally {
      writer.interrupt();
      writer.join();
    }
  }

  public static void anAbandonedEditIsReclaimed() {
    byte[] key = {1};
    MutableEntries edit = Entries.empty(true).edit();
    put(edit, key, new byte[100_000], 0);
    Entries version = edit.freeze();
    put(version.edit(), key, new byte[90_000], 0);
    MutableEntries still = version.edit();
    put(still, new byte[] {2}, new byte[1], 0);
    Check.that(still.freeze().shares(version), "less than half is dead");
    put(version.edit(), key, new byte[90_000], 0);
    put(still, new byte[] {2}, new byte[2], 0);
    Entries compacted = still.freeze();
    Check.that(!compacted.shares(version), "more than half is dead");
    Check.that(compacted.memoryBytes() < 120_000, "only live entries are kept");
    Check.equal(compacted.valueLength(MapOfEntries.find(compacted, key)), 100_000);
    Check.equal(version.size(), 1);
  }

  /** Returns the maximum memory of a version during many small commits. */
  public static long smallCommits(JsonNode arguments) {
    boolean withZombies = arguments.get("zombies").asBoolean();
    Entries version = Entries.empty(true);
    long most = 0;
    for (int commit = 0; commit < 20_000; commit++) {
      MutableEntries zombie = version.edit();
      MutableEntries edit = version.edit();
      if (withZombies) {
        put(zombie, new byte[] {1}, new byte[8], 0);
      }
      put(edit, new byte[] {(byte) (commit % 10)}, new byte[8], 0);
      version = edit.freeze();
      most = Math.max(most, version.memoryBytes());
      Check.equal(version.size(), Math.min(10, commit + 1));
    }
    return most;
  }

  public static void commitsThatOnlyAddLeaveNothingToReclaim() {
    Entries first = Entries.empty(true);
    Entries version = first;
    for (int commit = 0; commit < 5_000; commit++) {
      MutableEntries edit = version.edit();
      put(edit, ByteBuffer.allocate(4).putInt(commit).array(), new byte[8], 0);
      version = edit.freeze();
    }
    Check.that(version.shares(first), "nothing has been compacted, as nothing is dead");
    Check.that(version.memoryBytes() < 5_000 * (40 + 8 + 8) * 1.5, "entries are adjacent");
  }

  public static void stateBeyondTheLimitIsRefused() {
    MutableEntries edit = Entries.empty(true, 20).edit();
    List<byte[]> keys = MapOfEntries.keys(100_000);
    MapOfEntries map = new MapOfEntries();
    Throwable thrown =
        Check.fails(() -> {
          for (byte[] key : keys) {
            map.put(edit, key, new byte[1_000], 0);
          }
        });
    Check.equal(thrown.getClass(), IllegalStateException.class);
    Check.says(thrown, "a partition's state is limited to 5 MiB in memory");
    Check.says(thrown, "use more partitions");
    map.check(edit, keys);
    map.check(edit.freeze(), keys);
  }

  public static void invalidEntriesAreRefused() {
    MutableEntries edit = Entries.empty(true).edit();
    Throwable negative = Check.fails(() -> edit.put(new byte[1], Platform.BYTE_ARRAY_OFFSET, 1, new byte[0], 0, -1, 0));
    Check.says(negative, "a value of -1 bytes");
    Check.says(Check.fails(() -> EntryLayout.words(Integer.MAX_VALUE, 8)), "a key and its value are limited to");
    Check.equal(edit.freeze().size(), 0);
  }

  public static void bytesOutsideTheHeapAreCopied() {
    long memory = Platform.allocateMemory(16);
    try {
      Platform.putLong(null, memory, 4_711);
      Platform.putLong(null, memory + 8, 42);
      MutableEntries edit = Entries.empty(true).edit();
      int address = edit.put(null, memory, 8, null, memory + 8, 8, 0);
      Platform.setMemory(memory + 8, (byte) 0, 8);
      Check.equal(edit.find(null, memory, 8), address);
      Check.equal(Platform.getLong(edit.base(address), edit.keyOffset(address)), 4_711L);
      Check.equal(Platform.getLong(edit.base(address), edit.valueOffset(address)), 42L);
    } finally {
      Platform.freeMemory(memory);
    }
  }

  private static int put(MutableEntries edit, byte[] key, byte[] value, long location) {
    long offset = Platform.BYTE_ARRAY_OFFSET;
    return edit.put(key, offset, key.length, value, offset, value.length, location);
  }
}
