package tableside.state;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import tableside.state.memory.Entries;

/** A store that derives a version from the previous one. Changes stay in this object until they are committed. */
final class WriteStore extends ReadStore implements StateStore {
  private static final AtomicLong ATTEMPTS_OUTSIDE_TASKS = new AtomicLong();

  private final Committer commits;
  /** The identity of this commit. */
  final String uid = UUID.randomUUID().toString();
  final boolean withCheckpointIds;
  final boolean snapshotForced;
  /** Increases with each attempt in this run of the query. */
  final long attempt;
  final long epoch;
  /** The uncommitted changes. */
  final PendingChanges changes;
  private StateVersion committed;
  private StateStoreMetrics metrics;
  private boolean failed;
  private boolean aborted;

  /**
   * @param withCheckpointIds whether a commit's identity identifies its version (checkpoint format v2)
   * @param epoch increases with each run of the query; 0 if the order of runs does not matter
   */
  WriteStore(ReadStore read, Committer commits, boolean withCheckpointIds, boolean snapshotForced, long epoch) {
    super(read.id(), read.loaded(), read.rows(), read.prefixes());
    this.commits = commits;
    this.withCheckpointIds = withCheckpointIds;
    this.snapshotForced = snapshotForced;
    this.attempt = nextAttempt();
    this.epoch = epoch;
    this.changes = new PendingChanges(loaded(), prefixes(), () -> commits.beginDelta(version() + 1, uid));
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String columnFamily) {
    checkOpen("put");
    check(columnFamily);
    SparkErrors.requireValue(value);
    change(() -> changes.put(key, value));
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    checkOpen("remove");
    check(columnFamily);
    change(() -> changes.remove(key));
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    int changed = committed == null ? changes.find(key) : Entries.NONE;
    if (changed == Entries.NONE) {
      return super.get(key, columnFamily);
    }
    return changes.latest().valueLength(changed) < 0 ? null : rows().inline(changes.latest(), changed);
  }

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    check(columnFamily);
    int changed = committed == null ? changes.find(key) : Entries.NONE;
    return changed == Entries.NONE ? super.keyExists(key, columnFamily) : changes.latest().valueLength(changed) >= 0;
  }

  /** Before the commit, all records including the changes so far; after it, all records of the new version. */
  @Override
  Iterator<UnsafeRowPair> records(StateVersion version) {
    return committed == null
        ? new RecordIterator(version.entries(), changes.latest().freeze(), rows())
        : super.records(version);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    check(columnFamily);
    if (committed != null || prefixes() == null) {
      return super.prefixScan(prefix, columnFamily);
    }
    Entries now = changes.latest().freeze();
    List<UnsafeRowPair> found = new ArrayList<>();
    for (byte[] key : changes.keys(prefix)) {
      int changed = now.find(key, Platform.BYTE_ARRAY_OFFSET, key.length);
      if (changed == Entries.NONE) {
        found.add(pair(state().entries(), find(state(), key)));
      } else if (now.valueLength(changed) >= 0) {
        found.add(new LazyPair(rows().key(now, changed), () -> rows().inline(now, changed)));
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
      throw SparkErrors.committing(error);
    }
    return committed.number();
  }

  @Override
  public boolean hasCommitted() {
    return committed != null;
  }

  /** Discards the changes. They were never visible; cleanup removes whatever was written of them. */
  @Override
  public void abort() {
    if (committed == null) {
      aborted = true;
      changes.discard();
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
    return withCheckpointIds
        ? new StateStoreCheckpointInfo(partition, committed.number(), Option.apply(uid), Option.apply(loaded().uid()))
        : new StateStoreCheckpointInfo(partition, committed.number(), Option.empty(), Option.empty());
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    throw SparkErrors.unsupported("putList");
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String columnFamily) {
    throw SparkErrors.unsupported("merge");
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    throw SparkErrors.unsupported("mergeList");
  }

  @Override
  public void createColFamilyIfAbsent(
      String columnFamily, StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keyEncoder,
      boolean useMultipleValuesPerKey, boolean isInternal) {
    throw SparkErrors.columnFamilies();
  }

  @Override
  public boolean removeColFamilyIfExists(String columnFamily) {
    throw SparkErrors.columnFamilyRemoval();
  }

  @Override
  StateVersion state() {
    return committed == null ? loaded() : committed;
  }

  private static long nextAttempt() {
    TaskContext task = TaskContext.get();
    return task == null ? ATTEMPTS_OUTSIDE_TASKS.incrementAndGet() : task.taskAttemptId();
  }

  private interface Change {
    void apply() throws IOException, InterruptedException;
  }

  /** Applies a change. After a failure the delta may lack it, so that the store cannot be committed. */
  private void change(Change change) {
    failed = true;
    try {
      change.apply();
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.committing(error);
    }
    failed = false;
  }

  private void checkOpen(String what) {
    if (committed != null || aborted || failed) {
      String reason = aborted ? "the store was aborted" : failed ? "a change failed" : "the store was committed";
      throw new IllegalStateException("cannot " + what + ": " + reason);
    }
  }
}
