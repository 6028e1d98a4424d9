package tableside.state;

import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import tableside.state.memory.Entries;
import tableside.state.memory.EntriesView;

/**
 * Presents entries as Spark's rows. Rows of values in memory share the entries' bytes, which never change.
 *
 * @param values the cache of values that the entries do not contain; null if they contain all values
 */
record RowReader(int keyFields, int valueFields, ValueCache values) {
  UnsafeRow key(Entries entries, int address) {
    return row(keyFields, entries.base(address), entries.keyOffset(address), entries.keyLength(address));
  }

  UnsafeRow value(Entries entries, int address) throws IOException, InterruptedException {
    return entries.inline()
        ? inline(entries, address)
        : row(values.get(entries.location(address), entries.valueLength(address)));
  }

  /** The value of an entry that contains it. */
  UnsafeRow inline(EntriesView entries, int address) {
    return row(valueFields, entries.base(address), entries.valueOffset(address), entries.valueLength(address));
  }

  /** Reads values in the order of the entries, for one pass. */
  interface Scan {
    UnsafeRow value(int address) throws IOException, InterruptedException;
  }

  Scan scan(Entries entries) {
    if (entries.inline()) {
      return address -> inline(entries, address);
    }
    ValueCache.Scan scan = values.scan(entries);
    return address -> row(scan.value(address));
  }

  private UnsafeRow row(byte[] value) {
    return row(valueFields, value, Platform.BYTE_ARRAY_OFFSET, value.length);
  }

  private static UnsafeRow row(int fields, Object base, long offset, int length) {
    UnsafeRow row = new UnsafeRow(fields);
    row.pointTo(base, offset, length);
    return row;
  }
}
