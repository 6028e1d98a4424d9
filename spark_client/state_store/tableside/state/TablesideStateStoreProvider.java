package tableside.state;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.SupportsFineGrainedReplay;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.NextIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;
import scala.collection.immutable.Seq;
import tableside.state.http.Settings;
import tableside.state.http.StoreCounters;
import tableside.state.http.Table;
import tableside.state.log.BlockIndex;
import tableside.state.log.CheckpointClaim;
import tableside.state.log.DeltaHistory;
import tableside.state.log.Lineage;
import tableside.state.log.LocalDisk;
import tableside.state.log.Manifest;
import tableside.state.log.RunEpochs;
import tableside.state.log.StateLog;
import tableside.state.log.StoreKeys;
import tableside.state.log.VersionCleaner;

/**
 * Stores the state of a Structured Streaming query in a Tableside table.
 *
 * <p>Spark creates one provider for each partition of each store of a stateful operator, on the executor that runs it.
 * {@link Settings} defines the settings; {@link StoreKeys} and {@link Manifest} define the layout of the table. A
 * version's keys and, by default, its values are in memory. The provider reads the table when it loads a version and
 * writes to it when it commits one.
 */
public final class TablesideStateStoreProvider
    implements StateStoreProvider, SupportsFineGrainedReplay {
  private static final Logger LOG = LoggerFactory.getLogger(TablesideStateStoreProvider.class);

  private boolean unloaded;
  private ReentrantReadWriteLock maintenanceLock;

  private StateStoreId id;
  private StructType keySchema;
  private int valueFields;
  private StateStoreConf conf;
  private Configuration hadoop;
  private StoreCounters counters;
  private StateLog log;
  private CheckpointClaim claim;
  private ValueCache values;
  private RowReader rows;
  private VersionCleaner cleaner;
  private VersionCache versions;
  private VersionResolver resolver;
  private SnapshotWriter snapshots;
  private Committer committer;

  /** Spark creates providers by class name. */
  public TablesideStateStoreProvider() {
    StateStoreProvider.$init$(this);
  }

  @Override
  public void init(
      StateStoreId stateStoreId, StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keyEncoder,
      boolean useColumnFamilies, StateStoreConf storeConf, Configuration hadoopConf, boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
    if (useColumnFamilies) {
      throw SparkErrors.columnFamilies();
    }
    if (useMultipleValuesPerKey) {
      throw SparkErrors.unsupported("multiple values per key");
    }
    int prefixColumns = PrefixIndex.columns(keyEncoder);
    this.id = stateStoreId;
    this.keySchema = keySchema;
    this.valueFields = valueSchema.length();
    this.conf = storeConf;
    this.hadoop = hadoopConf;
    Settings settings = Settings.of(hadoopConf);
    this.counters = new StoreCounters();
    createCheckpointDirectory(stateStoreId);
    StoreKeys keys = StoreKeys.of(stateStoreId, hadoopConf.get(StreamExecution$.MODULE$.RUN_ID_KEY()), hadoopConf);
    this.log = new StateLog(Table.shared(settings), settings, keys, conf.compressionCodec(), counters);
    this.claim = new CheckpointClaim(log, stateStoreId, hadoopConf);
    BlockIndex blocks =
        settings.bounded()
            ? new BlockIndex(LocalDisk.inSparkDirectory(StateLog.sparkConf(), settings.diskBytesMax()))
            : null;
    // After a value could not be read, the cached versions are dropped, so that the next attempt reloads them.
    this.values =
        blocks == null
            ? null
            : new ValueCache(log, blocks, settings.memoryRecordsMax(), settings.memoryBytesMax(), () -> versions.clear());
    this.rows = new RowReader(keySchema.length(), valueSchema.length(), values);
    VersionLoader loader =
        new VersionLoader(
            log, blocks, keySchema.length(), valueSchema.length(),
            (key, value) ->
                StateStoreProvider$.MODULE$.validateStateRowFormat(key, keySchema, value, valueSchema, id, conf));
    this.cleaner = new VersionCleaner(log);
    this.versions = new VersionCache(conf.maxVersionsToRetainInMemory());
    this.resolver =
        new VersionResolver(
            log, claim, versions, loader, settings.bounded(), conf.minDeltasForSnapshot(), keySchema, prefixColumns);
    this.snapshots = new SnapshotWriter(log, values, versions, id, conf, hadoop);
    this.committer = new Committer(log, values, versions, snapshots, id, conf, hadoop);
  }

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  @Override
  public StateStore getStore(long version, Option<String> uniqueId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    String uid = orNull(uniqueId);
    StateVersion loaded = loadEmpty ? resolver.empty(version, uid) : resolver.load(version, uid);
    return write(reader(loaded), forceSnapshotOnCommit);
  }

  /** Spark 4.1 calls this method. */
  public StateStore getStore(long version, Option<String> uniqueId) {
    return getStore(version, uniqueId, false, false);
  }

  @Override
  public ReadStateStore getReadStore(long version, Option<String> uniqueId) {
    return reader(resolver.load(version, orNull(uniqueId)));
  }

  /** Reuses the loaded version of the read store. */
  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore, long version, Option<String> uniqueId, boolean forceSnapshotOnCommit) {
    return readStore instanceof ReadStore read && read.version() == version
        ? write(read, forceSnapshotOnCommit)
        : getStore(version, uniqueId, forceSnapshotOnCommit, false);
  }

  /** Loads a version from the snapshot of an earlier one, for Spark's state reader. */
  @Override
  public StateStore replayStateFromSnapshot(
      long snapshotVersion, long endVersion, boolean readOnly, Option<String> snapshotUniqueId,
      Option<String> endUniqueId) {
    return write(reader(replay(snapshotVersion, endVersion, snapshotUniqueId, endUniqueId)), false);
  }

  @Override
  public ReadStateStore replayReadStateFromSnapshot(
      long snapshotVersion, long endVersion, Option<String> snapshotUniqueId, Option<String> endUniqueId) {
    return reader(replay(snapshotVersion, endVersion, snapshotUniqueId, endUniqueId));
  }

  /** Reads the changes of the commits of these versions, for Spark's state reader. */
  @Override
  public NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> getStateStoreChangeDataReader(
      long startVersion, long endVersion, Option<String> columnFamily, Option<String> endUniqueId) {
    if (columnFamily.isDefined()) {
      ReadStore.check(columnFamily.get());
    }
    try {
      List<Lineage.Delta> deltas = new DeltaHistory(log).deltas(startVersion - 1, endVersion, orNull(endUniqueId));
      return new ChangeFeed(log, keySchema.length(), valueFields, deltas);
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.reading(error);
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return SparkMetrics.supported();
  }

  /** Spark calls this if it unloads a store after each commit, and the two methods below otherwise. */
  @Override
  public void doMaintenance() {
    doSnapshotMaintenance();
    doCleanupMaintenance();
  }

  /** Writes a snapshot of the newest version if enough versions have been committed since the last snapshot. */
  @Override
  public void doSnapshotMaintenance() {
    StateVersion newest = versions.newest();
    if (newest != null) {
      maintain(() -> snapshots.takeIfDue(newest, conf.minDeltasForSnapshot()));
    }
  }

  /** Removes the versions that no longer need to be retained. */
  @Override
  public void doCleanupMaintenance() {
    StateVersion newest = versions.newest();
    if (newest != null) {
      maintain(() -> cleaner.clean(newest.number(), versions.lineageOf(newest), conf.minVersionsToRetain()));
    }
  }

  /** Work that can also be done later. */
  private interface Maintenance {
    void run() throws IOException, InterruptedException;
  }

  /** Postpones maintenance if the service is unavailable. If maintenance failed, Spark would unload a healthy store. */
  private void maintain(Maintenance maintenance) {
    try {
      claim.confirm();
      maintenance.run();
    } catch (IOException error) {
      LOG.warn("maintenance of {} is postponed", log.keys().prefix(), error);
    } catch (InterruptedException error) {
      throw SparkErrors.committing(error);
    }
  }

  @Override
  public void close() {
    versions.clear();
    if (values != null) {
      values.blocks().disk().close();
    }
  }

  @Override
  public boolean unloaded() {
    return unloaded;
  }

  @Override
  public void unloaded_$eq(boolean value) {
    unloaded = value;
  }

  @Override
  public ReentrantReadWriteLock maintenanceLock() {
    return maintenanceLock;
  }

  @Override
  public void org$apache$spark$sql$execution$streaming$state$StateStoreProvider$_setter_$maintenanceLock_$eq(
      ReentrantReadWriteLock lock) {
    maintenanceLock = lock;
  }

  @Override
  public String toString() {
    return "TablesideStateStoreProvider " + id;
  }

  private StateVersion replay(
      long snapshotVersion, long endVersion, Option<String> snapshotUid, Option<String> endUid) {
    try {
      return resolver.replay(snapshotVersion, orNull(snapshotUid), endVersion, orNull(endUid));
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.reading(error);
    }
  }

  private static String orNull(Option<String> text) {
    return text.isEmpty() ? null : text.get();
  }

  private ReadStore reader(StateVersion version) {
    return new ReadStore(id, version, rows, resolver.prefixes());
  }

  private WriteStore write(ReadStore read, boolean forceSnapshot) {
    try {
      claim.confirm();
      boolean withCheckpointIds = conf.enableStateStoreCheckpointIds();
      String run = hadoop.get(StreamExecution$.MODULE$.RUN_ID_KEY());
      // Assign the epoch before anything is committed, so that a late attempt of an earlier run is recognizable.
      long epoch = withCheckpointIds || run == null ? 0 : RunEpochs.epoch(log, run);
      return new WriteStore(read, committer, withCheckpointIds, forceSnapshot, epoch);
    } catch (IOException | InterruptedException error) {
      throw SparkErrors.reading(error);
    }
  }

  /** Creates the directory in which Spark's state reader looks for partitions. */
  private void createCheckpointDirectory(StateStoreId store) {
    Path path = store.storeCheckpointLocation();
    try {
      path.getFileSystem(hadoop).mkdirs(path);
    } catch (IOException error) {
      throw new IllegalStateException("cannot create " + path, error);
    }
  }
}
