package tableside.state;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

/**
 * The keys of a version by their first columns. For each prefix there is an entry whose value is the list of its keys:
 * each its length in four bytes, then the key.
 *
 * <p>Not thread-safe: each store has its own. The entries are.
 */
final class Prefixes {
  private final UnsafeProjection projection;

  /** @param columns how many of the key's first columns are the prefix */
  Prefixes(StructType keySchema, int columns) {
    StructField[] fields = java.util.Arrays.copyOf(keySchema.fields(), columns);
    projection = UnsafeProjection.create(new StructType(fields));
  }

  /** The prefix of a key. */
  ByteBuffer of(UnsafeRow key) {
    return ByteBuffer.wrap(bytes(projection.apply(key)));
  }

  /** A copy of a row's bytes: its own are used again for the next row. */
  static byte[] bytes(UnsafeRow row) {
    byte[] bytes = new byte[row.getSizeInBytes()];
    Platform.copyMemory(
        row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  /** The keys in a prefix's list, as bytes. */
  static List<byte[]> keys(Entries entries, UnsafeRow prefix) {
    return keys(entries, entries.find(prefix.getBaseObject(), prefix.getBaseOffset(), prefix.getSizeInBytes()));
  }

  private static List<byte[]> keys(Entries entries, int address) {
    List<byte[]> keys = new ArrayList<>();
    if (address == Entries.NONE) {
      return keys;
    }
    byte[] packed = new byte[entries.valueLength(address)];
    Platform.copyMemory(entries.base(address), entries.valueOffset(address), packed, Platform.BYTE_ARRAY_OFFSET, packed.length);
    ByteBuffer buffer = ByteBuffer.wrap(packed);
    while (buffer.hasRemaining()) {
      byte[] key = new byte[buffer.getInt()];
      buffer.get(key);
      keys.add(key);
    }
    return keys;
  }

  /** Changes of many keys, gathered by prefix, so that each list is written once. */
  static final class Changes {
    private record Change(List<byte[]> added, List<byte[]> removed) {}

    private final Map<ByteBuffer, Change> changes = new LinkedHashMap<>();

    /** A key that is new (`added`) or that is no longer there. */
    void note(ByteBuffer prefix, byte[] key, boolean added) {
      Change change = changes.computeIfAbsent(prefix, name -> new Change(new ArrayList<>(), new ArrayList<>()));
      (added ? change.added : change.removed).add(key);
    }

    Entries applied(Entries entries) {
      Edit edit = entries.edit();
      changes.forEach((prefix, change) -> apply(entries, edit, prefix.array(), change));
      return edit.freeze();
    }

    private static void apply(Entries entries, Edit edit, byte[] prefix, Change change) {
      int before = entries.find(prefix, Platform.BYTE_ARRAY_OFFSET, prefix.length);
      Map<ByteBuffer, byte[]> keys = new LinkedHashMap<>();
      keys(entries, before).forEach(key -> keys.put(ByteBuffer.wrap(key), key));
      change.removed.forEach(key -> keys.remove(ByteBuffer.wrap(key)));
      change.added.forEach(key -> keys.put(ByteBuffer.wrap(key), key));
      if (keys.isEmpty()) {
        edit.remove(prefix, Platform.BYTE_ARRAY_OFFSET, prefix.length);
        return;
      }
      byte[] packed = packed(keys.values());
      edit.put(
          prefix, Platform.BYTE_ARRAY_OFFSET, prefix.length, packed, Platform.BYTE_ARRAY_OFFSET, packed.length, 0);
    }

    private static byte[] packed(Iterable<byte[]> keys) {
      ByteArrayOutputStream packed = new ByteArrayOutputStream();
      for (byte[] key : keys) {
        packed.writeBytes(ByteBuffer.allocate(Integer.BYTES).putInt(key.length).array());
        packed.writeBytes(key);
      }
      return packed.toByteArray();
    }
  }
}
