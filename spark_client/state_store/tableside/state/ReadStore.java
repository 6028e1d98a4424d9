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

/** One version of a store's state, to be read. Holds nothing that would have to be given back. */
class ReadStore implements ReadStateStore {
  static final String COLUMN_FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  private final StateStoreId id;
  private final Version version;
  private final Rows rows;
  private final Prefixes prefixes;

  /** @param prefixes null where the operator does not scan by prefix */
  ReadStore(StateStoreId id, Version version, Rows rows, Prefixes prefixes) {
    this.id = id;
    this.version = version;
    this.rows = rows;
    this.prefixes = prefixes;
  }

  @Override
  public StateStoreId id() {
    return id;
  }

  /** The version that was loaded. */
  @Override
  public long version() {
    return version.number();
  }

  Version loaded() {
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
      throw Failures.unsupported("prefixScan");
    }
    List<UnsafeRowPair> found = new ArrayList<>();
    for (byte[] key : Prefixes.keys(state().prefixes(), prefix)) {
      found.add(pair(state().entries(), find(state(), key)));
    }
    return closeable(found.iterator());
  }

  @Override
  public scala.collection.Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    throw Failures.unsupported("valuesIterator");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(UnsafeRow prefix, String columnFamily) {
    throw Failures.unsupported("prefixScanWithMultiValues");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    throw Failures.unsupported("iteratorWithMultiValues");
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

  /** The version that reads see beside changes that are not committed. */
  Version state() {
    return version;
  }

  Rows rows() {
    return rows;
  }

  Prefixes prefixes() {
    return prefixes;
  }

  static void check(String columnFamily) {
    if (!COLUMN_FAMILY.equals(columnFamily)) {
      throw Failures.columnFamilies();
    }
  }

  static int find(Version version, UnsafeRow key) {
    return version.entries().find(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  static int find(Version version, byte[] key) {
    return version.entries().find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
  }

  UnsafeRow value(Version version, UnsafeRow key) {
    int address = find(version, key);
    try {
      return address == Entries.NONE ? null : rows.value(version.entries(), address);
    } catch (IOException | InterruptedException | IllegalStateException error) {
      throw Failures.reading(error);
    }
  }

  UnsafeRowPair pair(Entries entries, int address) {
    return new Pair(rows.key(entries, address), () -> rows.value(entries, address));
  }

  /** Every record of a version, in the order in which they were written. */
  Iterator<UnsafeRowPair> records(Version version) {
    return new Records(version.entries(), Entries.empty(true), rows);
  }

  static StateStoreIterator<UnsafeRowPair> closeable(Iterator<UnsafeRowPair> records) {
    return new StateStoreIterator<>(CollectionConverters.asScala(records), () -> BoxedUnit.UNIT);
  }
}
