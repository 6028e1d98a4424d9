package tableside.state;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import tableside.state.memory.Entries;
import tableside.state.memory.MutableEntries;

/**
 * An index of a version's keys by their first columns. An entry for each prefix has the list of its keys as its value:
 * for each key its length in four bytes, and the key.
 *
 * <p>Not thread-safe: each store has its own. The entries are thread-safe.
 */
final class PrefixIndex {
  private final UnsafeProjection projection;

  /** @param columns the number of leading key columns that form the prefix */
  PrefixIndex(StructType keySchema, int columns) {
    StructField[] fields = java.util.Arrays.copyOf(keySchema.fields(), columns);
    projection = UnsafeProjection.create(new StructType(fields));
  }

  /** Returns the number of prefix columns of an operator; 0 if it does not scan by prefix. */
  static int columns(KeyStateEncoderSpec encoder) {
    if (encoder instanceof PrefixKeyScanStateEncoderSpec prefix) {
      int columns = prefix.numColsPrefixKey();
      if (columns < 1 || columns >= prefix.keySchema().length()) {
        throw StateStoreErrors$.MODULE$
            .incorrectNumOrderingColsForPrefixScan(Integer.toString(columns));
      }
      return columns;
    }
    if (encoder instanceof NoPrefixKeyStateEncoderSpec) {
      return 0;
    }
    throw SparkErrors.unsupported(encoder.getClass().getSimpleName());
  }

  /** Returns the prefix of a key. */
  ByteBuffer of(UnsafeRow key) {
    return ByteBuffer.wrap(bytes(projection.apply(key)));
  }

  /** Copies a row's bytes, because Spark reuses the row's memory. */
  static byte[] bytes(UnsafeRow row) {
    byte[] bytes = new byte[row.getSizeInBytes()];
    Platform.copyMemory(
        row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  /** Returns the keys with a prefix. */
  static List<byte[]> keys(Entries entries, UnsafeRow prefix) {
    return keys(entries, entries.find(prefix.getBaseObject(), prefix.getBaseOffset(), prefix.getSizeInBytes()));
  }

  private static List<byte[]> keys(Entries entries, int address) {
    List<byte[]> keys = new ArrayList<>();
    if (address == Entries.NONE) {
      return keys;
    }
    byte[] packed = new byte[entries.valueLength(address)];
    Platform.copyMemory(
        entries.base(address), entries.valueOffset(address), packed, Platform.BYTE_ARRAY_OFFSET, packed.length);
    ByteBuffer buffer = ByteBuffer.wrap(packed);
    while (buffer.hasRemaining()) {
      byte[] key = new byte[buffer.getInt()];
      buffer.get(key);
      keys.add(key);
    }
    return keys;
  }

  /** Collects changes of keys by prefix, so that each list is written once. */
  static final class Changes {
    private record Change(List<byte[]> added, List<byte[]> removed) {}

    private final Map<ByteBuffer, Change> changes = new LinkedHashMap<>();

    /** Adds the key to its prefix (`added`), or removes it. */
    void add(ByteBuffer prefix, byte[] key, boolean added) {
      Change change = changes.computeIfAbsent(prefix, name -> new Change(new ArrayList<>(), new ArrayList<>()));
      (added ? change.added : change.removed).add(key);
    }

    Entries applyTo(Entries entries) {
      MutableEntries edit = entries.edit();
      changes.forEach((prefix, change) -> apply(entries, edit, prefix.array(), change));
      return edit.freeze();
    }

    private static void apply(Entries entries, MutableEntries edit, byte[] prefix, Change change) {
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
