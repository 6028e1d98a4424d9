package tableside.state;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;

/** A version being made from the one before it. What is changed stays here until it is committed. */
final class WriteStore extends ReadStore implements StateStore {
  private static final int CHANGES_UNTIDIED_MAX = 1 << 16;
  private static final AtomicLong ATTEMPTS_OUTSIDE_TASKS = new AtomicLong();

  private final Commits commits;
  private final String uid = UUID.randomUUID().toString();
  private final boolean withIdentities;
  private final boolean snapshotForced;
  private final long attempt;
  private final long epoch;
  private final StateLog log;
  private final Edit changes = Entries.empty(true).edit();
  private int changesSinceTidied;
  private final Map<ByteBuffer, List<byte[]>> changedKeys = new LinkedHashMap<>();
  private CompletableFuture<List<Outcome>> announced;
  private Version committed;
  private StateStoreMetrics metrics;
  private boolean aborted;

  /**
   * @param withIdentities whether versions are known by the identity of their commit (checkpoint format v2)
   * @param epoch greater for a later run of the query; 0 where that does not matter
   */
  WriteStore(
      ReadStore read, Commits commits, StateLog log, boolean withIdentities, boolean snapshotForced, long epoch) {
    super(read.id(), read.loaded(), read.rows(), read.prefixes());
    this.commits = commits;
    this.withIdentities = withIdentities;
    this.snapshotForced = snapshotForced;
    this.attempt = nextAttempt();
    this.epoch = epoch;
    this.log = log;
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String columnFamily) {
    checkOpen("put");
    check(columnFamily);
    StateStoreErrors$.MODULE$.requireNonNullStateValue(value, columnFamily);
    noteChange(key);
    changes.put(
        key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes(),
        value.getBaseObject(), value.getBaseOffset(), value.getSizeInBytes(), 0);
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    checkOpen("remove");
    check(columnFamily);
    noteChange(key);
    changes.tombstone(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    int changed = committed == null ? findChange(key) : Entries.NONE;
    if (changed == Entries.NONE) {
      return super.get(key, columnFamily);
    }
    return changes.valueLength(changed) < 0 ? null : rows().inline(changes, changed);
  }

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    int changed = committed == null ? findChange(key) : Entries.NONE;
    return changed == Entries.NONE ? super.keyExists(key, columnFamily) : changes.valueLength(changed) >= 0;
  }

  /** Before the commit every record with the changes so far, afterwards every record of the new version. */
  @Override
  Iterator<UnsafeRowPair> records(Version version) {
    return committed == null
        ? new Records(version.entries(), changes.freeze(), rows())
        : super.records(version);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    check(columnFamily);
    if (committed != null || prefixes() == null) {
      return super.prefixScan(prefix, columnFamily);
    }
    Entries now = changes.freeze();
    List<UnsafeRowPair> found = new ArrayList<>();
    for (byte[] key : keys(prefix)) {
      int changed = now.find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
      if (changed == Entries.NONE) {
        found.add(pair(state().entries(), find(state(), key)));
      } else if (now.valueLength(changed) >= 0) {
        found.add(new Pair(rows().key(now, changed), () -> rows().inline(now, changed)));
      }
    }
    return closeable(found.iterator());
  }

  @Override
  public long commit() {
    checkOpen("commit");
    try {
      committed = commits.commit(this);
    } catch (IOException | InterruptedException | IllegalStateException error) {
      throw Failures.committing(error);
    }
    return committed.number();
  }

  @Override
  public boolean hasCommitted() {
    return committed != null;
  }

  /** Forget the changes. Nothing of them was visible, and what was written of them is removed by cleaning. */
  @Override
  public void abort() {
    if (committed == null) {
      aborted = true;
    }
  }

  @Override
  public void release() {
    abort();
  }

  @Override
  public StateStoreMetrics metrics() {
    if (metrics == null && committed != null) {
      metrics = commits.metrics(this);
    }
    return metrics == null ? commits.metrics(this) : metrics;
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    if (committed == null) {
      throw new IllegalStateException("the store has not been committed");
    }
    int partition = id().partitionId();
    return withIdentities
        ? new StateStoreCheckpointInfo(partition, committed.number(), Option.apply(uid), Option.apply(loaded().uid()))
        : new StateStoreCheckpointInfo(partition, committed.number(), Option.empty(), Option.empty());
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    throw Failures.unsupported("putList");
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String columnFamily) {
    throw Failures.unsupported("merge");
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    throw Failures.unsupported("mergeList");
  }

  @Override
  public void createColFamilyIfAbsent(
      String columnFamily, StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keyEncoder,
      boolean useMultipleValuesPerKey, boolean isInternal) {
    throw Failures.columnFamilies();
  }

  @Override
  public boolean removeColFamilyIfExists(String columnFamily) {
    throw Failures.noRemovalOfColumnFamilies();
  }

  @Override
  Version state() {
    return committed == null ? loaded() : committed;
  }

  /** The identity of this commit. */
  String uid() {
    return uid;
  }

  boolean withIdentities() {
    return withIdentities;
  }

  boolean snapshotForced() {
    return snapshotForced;
  }

  long epoch() {
    return epoch;
  }

  /** Greater for what was begun later in this run of the query. */
  long attempt() {
    return attempt;
  }

  /** Done when the table knows of this attempt: nothing of it may be written before. Begun at the first change. */
  CompletableFuture<List<Outcome>> announced() {
    if (announced == null) {
      announced = log.attempt(version() + 1, uid);
    }
    return announced;
  }

  /** The changes; the value's length is -1 where a record was removed. */
  Edit changes() {
    return changes;
  }

  /** The keys by prefix as they are after the changes; null where the operator does not scan by prefix. */
  Entries prefixesAfter() {
    if (prefixes() == null) {
      return null;
    }
    Prefixes.Changes after = new Prefixes.Changes();
    changedKeys.forEach(
        (prefix, keys) -> {
          for (byte[] key : keys) {
            boolean was = find(loaded(), key) != Entries.NONE;
            boolean is = changes.valueLength(changes.find(key, Platform.BYTE_ARRAY_OFFSET, key.length)) >= 0;
            if (was != is) {
              after.note(prefix, key, is);
            }
          }
        });
    return after.applied(loaded().prefixes());
  }

  private static long nextAttempt() {
    TaskContext task = TaskContext.get();
    return task == null ? ATTEMPTS_OUTSIDE_TASKS.incrementAndGet() : task.taskAttemptId();
  }

  private int findChange(UnsafeRow key) {
    return changes.find(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  /** Keep the key under its prefix, when it is changed for the first time. */
  private void noteChange(UnsafeRow key) {
    announced();
    tidy();
    if (prefixes() != null && findChange(key) == Entries.NONE) {
      changedKeys.computeIfAbsent(prefixes().of(key), name -> new ArrayList<>()).add(Prefixes.bytes(key));
    }
  }

  /** Keys that are changed again and again leave what they were behind: now and then it is thrown away. */
  private void tidy() {
    if (++changesSinceTidied == CHANGES_UNTIDIED_MAX) {
      changes.freeze();
      changesSinceTidied = 0;
    }
  }

  /** The keys of a prefix that the version has or that are changed, each once. */
  private List<byte[]> keys(UnsafeRow prefix) {
    List<byte[]> keys = Prefixes.keys(loaded().prefixes(), prefix);
    for (byte[] key : changedKeys.getOrDefault(ByteBuffer.wrap(Prefixes.bytes(prefix)), List.of())) {
      if (find(loaded(), key) == Entries.NONE) {
        keys.add(key);
      }
    }
    return keys;
  }

  private void checkOpen(String what) {
    if (committed != null || aborted) {
      throw new IllegalStateException("cannot " + what + ": the store was " + (aborted ? "aborted" : "committed"));
    }
  }
}
