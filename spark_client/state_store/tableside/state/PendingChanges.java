package tableside.state;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import tableside.state.log.Block;
import tableside.state.log.ChunkWriter;
import tableside.state.memory.Entries;
import tableside.state.memory.MutableEntries;

/**
 * The uncommitted changes of a store. The delta contains every change in order, and is written to the table as the
 * batch proceeds. Memory contains the latest value of each changed key, or a tombstone.
 */
final class PendingChanges {
  private final StateVersion base;
  private final PrefixIndex prefixes;
  private final Supplier<ChunkWriter> deltas;
  private final MutableEntries latest = Entries.empty(true).edit();
  private final Map<ByteBuffer, List<byte[]>> keysByPrefix = new LinkedHashMap<>();
  private ChunkWriter delta;

  /**
   * @param base the version that the changes start from
   * @param prefixes null if the operator does not scan by prefix
   * @param deltas opens the delta; called once, at the first change or at the commit
   */
  PendingChanges(StateVersion base, PrefixIndex prefixes, Supplier<ChunkWriter> deltas) {
    this.base = base;
    this.prefixes = prefixes;
    this.deltas = deltas;
  }

  void put(UnsafeRow key, UnsafeRow value) throws IOException, InterruptedException {
    indexByPrefix(key);
    long location =
        delta().add(
            key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes(),
            value.getBaseObject(), value.getBaseOffset(), value.getSizeInBytes());
    latest.put(
        key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes(),
        value.getBaseObject(), value.getBaseOffset(), value.getSizeInBytes(), location);
    latest.reclaim();
  }

  /** Removes a key. If the key is absent, nothing changes. */
  void remove(UnsafeRow key) throws IOException, InterruptedException {
    if (!contains(key)) {
      return;
    }
    indexByPrefix(key);
    delta().add(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes(), null, 0, Block.REMOVED);
    latest.tombstone(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
    latest.reclaim();
  }

  /** The latest value of each changed key; a value length of -1 marks a removed key. */
  MutableEntries latest() {
    return latest;
  }

  /** Returns the address of a changed key in {@link #latest}, or NONE. It is valid until the next change. */
  int find(UnsafeRow key) {
    return latest.find(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  /** The delta with all changes so far. */
  ChunkWriter delta() {
    if (delta == null) {
      delta = deltas.get();
    }
    return delta;
  }

  /** Stops writing the delta. Cleanup removes what the table contains of it. */
  void discard() {
    if (delta != null) {
      delta.discard();
    }
  }

  /**
   * @param entries the entries of the base version
   * @param values caches the values that the entries do not contain; null if they contain all values
   * @return the entries after the changes
   */
  Entries applyTo(Entries entries, ValueCache values) {
    Entries changes = latest.freeze();
    MutableEntries edit = entries.edit();
    for (int at = changes.next(Entries.NONE); at != Entries.NONE; at = changes.next(at)) {
      Object bytes = changes.base(at);
      int valueLength = changes.valueLength(at);
      if (valueLength < 0) {
        edit.remove(bytes, changes.keyOffset(at), changes.keyLength(at));
      } else {
        edit.put(changes, at);
        cache(values, changes.location(at), bytes, changes.valueOffset(at), valueLength);
      }
    }
    return edit.freeze();
  }

  /** The prefix index after the changes; null if the operator does not scan by prefix. */
  Entries updatedPrefixes() {
    if (prefixes == null) {
      return null;
    }
    PrefixIndex.Changes after = new PrefixIndex.Changes();
    keysByPrefix.forEach(
        (prefix, keys) -> {
          for (byte[] key : keys) {
            boolean was = ReadStore.find(base, key) != Entries.NONE;
            boolean is = latest.valueLength(latest.find(key, Platform.BYTE_ARRAY_OFFSET, key.length)) >= 0;
            if (was != is) {
              after.add(prefix, key, is);
            }
          }
        });
    return after.applyTo(base.prefixes());
  }

  /** The keys with a prefix in the base version or among the changes, without duplicates, including removed ones. */
  List<byte[]> keys(UnsafeRow prefix) {
    List<byte[]> keys = PrefixIndex.keys(base.prefixes(), prefix);
    for (byte[] key : keysByPrefix.getOrDefault(ByteBuffer.wrap(PrefixIndex.bytes(prefix)), List.of())) {
      if (ReadStore.find(base, key) == Entries.NONE) {
        keys.add(key);
      }
    }
    return keys;
  }

  private boolean contains(UnsafeRow key) {
    int changed = find(key);
    return changed == Entries.NONE ? ReadStore.find(base, key) != Entries.NONE : latest.valueLength(changed) >= 0;
  }

  /** Records the key under its prefix when it changes for the first time. */
  private void indexByPrefix(UnsafeRow key) {
    if (prefixes != null && find(key) == Entries.NONE) {
      keysByPrefix.computeIfAbsent(prefixes.of(key), name -> new ArrayList<>()).add(PrefixIndex.bytes(key));
    }
  }

  private static void cache(ValueCache values, long location, Object bytes, long offset, int length) {
    if (values != null) {
      byte[] value = new byte[length];
      Platform.copyMemory(bytes, offset, value, Platform.BYTE_ARRAY_OFFSET, length);
      values.put(location, value);
    }
  }
}
