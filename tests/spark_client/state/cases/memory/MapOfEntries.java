package tableside.state.memory;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.spark.unsafe.Platform;
import tableside.state.Check;

/** The reference for entries: a map of the JDK with the same changes, in the order of the last writes. */
final class MapOfEntries {
  /** The value and location of a key; the value is null for a tombstone. */
  record Held(byte[] value, long location) {}

  private final LinkedHashMap<ByteBuffer, Held> map;

  MapOfEntries() {
    this(new LinkedHashMap<>());
  }

  private MapOfEntries(LinkedHashMap<ByteBuffer, Held> map) {
    this.map = map;
  }

  MapOfEntries copy() {
    return new MapOfEntries(new LinkedHashMap<>(map));
  }

  /** Keys of increasing length from 0, with equal beginnings. */
  static List<byte[]> keys(int count) {
    byte[][] keys = new byte[count][];
    for (int number = 0; number < count; number++) {
      keys[number] = Arrays.copyOf("a key that is long enough for it".getBytes(), number == 0 ? 0 : 4 + number % 29);
      if (number > 0) {
        ByteBuffer.wrap(keys[number]).putInt(number);
      }
    }
    return List.of(keys);
  }

  /** Applies the same random change to both. */
  void change(MutableEntries edit, Random random, List<byte[]> keys, int valueMax) {
    byte[] key = keys.get(random.nextInt(keys.size()));
    int kind = random.nextInt(10);
    if (kind < 6) {
      byte[] value = new byte[random.nextInt(valueMax + 1)];
      random.nextBytes(value);
      put(edit, key, value, random.nextLong());
    } else if (kind < 9) {
      remove(edit, key);
    } else {
      tombstone(edit, key);
    }
  }

  void put(MutableEntries edit, byte[] key, byte[] value, long location) {
    byte[] moved = new byte[key.length + 3];
    System.arraycopy(key, 0, moved, 3, key.length);
    int address =
        edit.put(
            moved, Platform.BYTE_ARRAY_OFFSET + 3, key.length, edit.inline() ? value : null,
            Platform.BYTE_ARRAY_OFFSET, value.length, location);
    Arrays.fill(moved, (byte) 99);
    Check.equal(address, find(edit, key));
    hold(key, new Held(value, location));
  }

  void remove(MutableEntries edit, byte[] key) {
    edit.remove(key, Platform.BYTE_ARRAY_OFFSET, key.length);
    map.remove(ByteBuffer.wrap(key));
  }

  void tombstone(MutableEntries edit, byte[] key) {
    edit.tombstone(key, Platform.BYTE_ARRAY_OFFSET, key.length);
    hold(key, new Held(null, 0));
  }

  /** Checks that a view has the same entries in the same order, and the same result for each key. */
  void check(EntriesView view, List<byte[]> keys) {
    Check.equal(view.size(), map.size());
    for (byte[] key : keys) {
      int address = find(view, key);
      Check.equal(address != EntriesView.NONE, map.containsKey(ByteBuffer.wrap(key)));
      if (address != EntriesView.NONE) {
        checkEntry(view, address, key, map.get(ByteBuffer.wrap(key)));
      }
    }
    Iterator<Map.Entry<ByteBuffer, Held>> held = map.entrySet().iterator();
    for (int address = view.next(EntriesView.NONE); address != EntriesView.NONE; address = view.next(address)) {
      Map.Entry<ByteBuffer, Held> entry = held.next();
      checkEntry(view, address, entry.getKey().array(), entry.getValue());
    }
    Check.equal(held.hasNext(), false);
  }

  static int find(EntriesView view, byte[] key) {
    return view.find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
  }

  static byte[] value(EntriesView view, int address) {
    return bytes(view.base(address), view.valueOffset(address), view.valueLength(address));
  }

  private static void checkEntry(EntriesView view, int address, byte[] key, Held held) {
    byte[] found = bytes(view.base(address), view.keyOffset(address), view.keyLength(address));
    Check.equal(ByteBuffer.wrap(found), ByteBuffer.wrap(key));
    Check.equal(view.location(address), held.location());
    Check.equal(view.valueLength(address), held.value() == null ? -1 : held.value().length);
    Check.equal(view.keyOffset(address) % 8, 0L);
    if (view.inline() && held.value() != null) {
      Check.equal(ByteBuffer.wrap(value(view, address)), ByteBuffer.wrap(held.value()));
      Check.equal(view.valueOffset(address) % 8, 0L);
    }
  }

  private static byte[] bytes(Object base, long offset, int length) {
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, Platform.BYTE_ARRAY_OFFSET, length);
    return copy;
  }

  /** A key that is written again moves to the end. */
  private void hold(byte[] key, Held held) {
    map.remove(ByteBuffer.wrap(key));
    map.put(ByteBuffer.wrap(key), held);
  }
}
