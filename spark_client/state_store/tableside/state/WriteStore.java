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

/** A store that derives a version from the previous one. Changes stay in this object until they are committed. */
final class WriteStore extends ReadStore implements StateStore {
  private static final int CHANGES_UNCOMPACTED_MAX = 1 << 16;
  private static final AtomicLong ATTEMPTS_OUTSIDE_TASKS = new AtomicLong();

  private final Committer commits;
  private final String uid = UUID.randomUUID().toString();
  private final boolean withCheckpointIds;
  private final boolean snapshotForced;
  private final long attempt;
  private final long epoch;
  private final StateLog log;
  private final MutableEntries changes = Entries.empty(true).edit();
  private int changesSinceCompaction;
  private final Map<ByteBuffer, List<byte[]>> changedKeys = new LinkedHashMap<>();
  private CompletableFuture<List<Outcome>> announcement;
  private StateVersion committed;
  private StateStoreMetrics metrics;
  private boolean aborted;

  /**
   * @param withCheckpointIds whether a commit's identity identifies its version (checkpoint format v2)
   * @param epoch increases with each run of the query; 0 if the order of runs does not matter
   */
  WriteStore(
      ReadStore read, Committer commits, StateLog log, boolean withCheckpointIds, boolean snapshotForced, long epoch) {
    super(read.id(), read.loaded(), read.rows(), read.prefixes());
    this.commits = commits;
    this.withCheckpointIds = withCheckpointIds;
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
    recordChange(key);
    changes.put(
        key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes(),
        value.getBaseObject(), value.getBaseOffset(), value.getSizeInBytes(), 0);
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    checkOpen("remove");
    check(columnFamily);
    recordChange(key);
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

  /** Before the commit, all records including the changes so far; after it, all records of the new version. */
  @Override
  Iterator<UnsafeRowPair> records(StateVersion version) {
    return committed == null
        ? new RecordIterator(version.entries(), changes.freeze(), rows())
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

  /** The identity of this commit. */
  String uid() {
    return uid;
  }

  boolean withCheckpointIds() {
    return withCheckpointIds;
  }

  boolean snapshotForced() {
    return snapshotForced;
  }

  long epoch() {
    return epoch;
  }

  /** Increases with each attempt in this run of the query. */
  long attempt() {
    return attempt;
  }

  /**
   * Completes when the table has recorded this attempt, which must precede all its other writes. Starts at the first
   * change.
   */
  CompletableFuture<List<Outcome>> announcement() {
    if (announcement == null) {
      announcement = log.announceCommit(version() + 1, uid);
    }
    return announcement;
  }

  /** The changes; a value length of -1 marks a removed record. */
  MutableEntries changes() {
    return changes;
  }

  /** The prefix index after the changes; null if the operator does not scan by prefix. */
  Entries updatedPrefixes() {
    if (prefixes() == null) {
      return null;
    }
    PrefixIndex.Changes after = new PrefixIndex.Changes();
    changedKeys.forEach(
        (prefix, keys) -> {
          for (byte[] key : keys) {
            boolean was = find(loaded(), key) != Entries.NONE;
            boolean is = changes.valueLength(changes.find(key, Platform.BYTE_ARRAY_OFFSET, key.length)) >= 0;
            if (was != is) {
              after.add(prefix, key, is);
            }
          }
        });
    return after.applyTo(loaded().prefixes());
  }

  private static long nextAttempt() {
    TaskContext task = TaskContext.get();
    return task == null ? ATTEMPTS_OUTSIDE_TASKS.incrementAndGet() : task.taskAttemptId();
  }

  private int findChange(UnsafeRow key) {
    return changes.find(key.getBaseObject(), key.getBaseOffset(), key.getSizeInBytes());
  }

  /** Records the key under its prefix when it changes for the first time. */
  private void recordChange(UnsafeRow key) {
    announcement();
    compactChanges();
    if (prefixes() != null && findChange(key) == Entries.NONE) {
      changedKeys.computeIfAbsent(prefixes().of(key), name -> new ArrayList<>()).add(PrefixIndex.bytes(key));
    }
  }

  /** Reclaims the memory of replaced values at intervals, since keys may change repeatedly. */
  private void compactChanges() {
    if (++changesSinceCompaction == CHANGES_UNCOMPACTED_MAX) {
      changes.freeze();
      changesSinceCompaction = 0;
    }
  }

  /** The keys with a prefix, both those in the version and those changed, without duplicates. */
  private List<byte[]> keys(UnsafeRow prefix) {
    List<byte[]> keys = PrefixIndex.keys(loaded().prefixes(), prefix);
    for (byte[] key : changedKeys.getOrDefault(ByteBuffer.wrap(PrefixIndex.bytes(prefix)), List.of())) {
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
