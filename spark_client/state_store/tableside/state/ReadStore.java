package tableside.state;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;
import tableside.state.memory.Entries;

/** A read-only view of one version of a store's state. It needs no release. */
class ReadStore implements ReadStateStore {
  static final String COLUMN_FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  private final StateStoreId id;
  private final StateVersion version;
  private final RowReader rows;
  private final PrefixIndex prefixes;

  /** @param prefixes null if the operator does not scan by prefix */
  ReadStore(StateStoreId id, StateVersion version, RowReader rows, PrefixIndex prefixes) {
    this.id = id;
    this.version = version;
    this.rows = rows;
    this.prefixes = prefixes;
  }

  @Override
  public StateStoreId id() {
    return id;
  }

  @Override
  public long version() {
    return version.number();
  }

  StateVersion loaded() {
    return version;
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    return value(state(), key);
  }

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    return find(state(), key) != Entries.NONE;
  }

  @Override
  public scala.collection.Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String columnFamily) {
    check(columnFamily);
    List<UnsafeRow> values = new ArrayList<>();
    for (UnsafeRow key : keys) {
      values.add(get(key, columnFamily));
    }
    return CollectionConverters.asScala(values.iterator());
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    check(columnFamily);
    return closeable(records(state()));
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    check(columnFamily);
    if (prefixes == null) {
      throw SparkErrors.unsupported("prefixScan");
    }
    List<UnsafeRowPair> found = new ArrayList<>();
    for (byte[] key : PrefixIndex.keys(state().prefixes(), prefix)) {
      found.add(pair(state().entries(), find(state(), key)));
    }
    return closeable(found.iterator());
  }

  @Override
  public scala.collection.Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    throw SparkErrors.unsupported("valuesIterator");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(UnsafeRow prefix, String columnFamily) {
    throw SparkErrors.unsupported("prefixScanWithMultiValues");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    throw SparkErrors.unsupported("iteratorWithMultiValues");
  }

  @Override
  public Set<String> allColumnFamilyNames() {
    return Set$.MODULE$.<String>empty().$plus(COLUMN_FAMILY);
  }

  @Override
  public void abort() {}

  @Override
  public void release() {}

  @Override
  public String toString() {
    return "Tableside state store " + id + " at version " + version.number();
  }

  /** The version that reads use, apart from uncommitted changes. */
  StateVersion state() {
    return version;
  }

  RowReader rows() {
    return rows;
  }

  PrefixIndex prefixes() {
    return prefixes;
  }

  static void check(String columnFamily) {
    if (!COLUMN_FAMILY.equals(columnFamily)) {
      throw SparkErrors.columnFamilies();
    }
  }

  static int find(StateVersion version, UnsafeRow key) {
    return version.entries().find(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  static int find(StateVersion version, byte[] key) {
    return version.entries().find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
  }

  UnsafeRow value(StateVersion version, UnsafeRow key) {
    int address = find(version, key);
    try {
      return address == Entries.NONE ? null : rows.value(version.entries(), address);
    } catch (IOException | InterruptedException | IllegalStateException error) {
      throw SparkErrors.reading(error);
    }
  }

  UnsafeRowPair pair(Entries entries, int address) {
    return new LazyPair(rows.key(entries, address), () -> rows.value(entries, address));
  }

  /** Iterates over all records of a version, in the order in which they were written. */
  Iterator<UnsafeRowPair> records(StateVersion version) {
    return new RecordIterator(version.entries(), Entries.empty(true), rows);
  }

  static StateStoreIterator<UnsafeRowPair> closeable(Iterator<UnsafeRowPair> records) {
    return new StateStoreIterator<>(CollectionConverters.asScala(records), () -> BoxedUnit.UNIT);
  }
}
