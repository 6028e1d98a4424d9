package tableside.state;

import java.io.IOException;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution$;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
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

/**
 * Keeps the state of a Structured Streaming query in a table of Tableside.
 *
 * <p>Spark makes one for each partition of each store of a stateful operator, on the executor that runs it. Settings are
 * those of {@link Settings}; how the table is laid out is said in {@link Place} and {@link Manifest}. A version's keys,
 * and by default its values, are in memory; the table is read when a version is loaded, and written when one is
 * committed.
 */
public final class TablesideStateStoreProvider
    implements StateStoreProvider, SupportsFineGrainedReplay {
  private static final Logger LOG = LoggerFactory.getLogger(TablesideStateStoreProvider.class);

  private boolean unloaded;
  private ReentrantReadWriteLock maintenanceLock;

  private StateStoreId id;
  private StructType keySchema;
  private int valueFields;
  private int prefixColumns;
  private StateStoreConf conf;
  private Configuration hadoop;
  private boolean bounded;
  private Meter meter;
  private StateLog log;
  private Values values;
  private Rows rows;
  private Loader loader;
  private Cleaning cleaning;
  private Versions versions;
  private Snapshots snapshots;
  private Commits commits;

  /** Spark makes providers by their name. */
  public TablesideStateStoreProvider() {
    StateStoreProvider.$init$(this);
  }

  @Override
  public void init(
      StateStoreId stateStoreId, StructType keySchema, StructType valueSchema, KeyStateEncoderSpec keyEncoder,
      boolean useColumnFamilies, StateStoreConf storeConf, Configuration hadoopConf, boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
    if (useColumnFamilies) {
      throw Failures.columnFamilies();
    }
    if (useMultipleValuesPerKey) {
      throw Failures.unsupported("multiple values per key");
    }
    this.prefixColumns = prefixColumns(keyEncoder);
    this.id = stateStoreId;
    this.keySchema = keySchema;
    this.valueFields = valueSchema.length();
    this.conf = storeConf;
    this.hadoop = hadoopConf;
    Settings settings = Settings.of(hadoopConf);
    this.bounded = settings.bounded();
    this.meter = new Meter();
    makeVisible(stateStoreId);
    Place place = Place.of(stateStoreId, hadoopConf.get(StreamExecution$.MODULE$.RUN_ID_KEY()), hadoopConf);
    this.log = new StateLog(Table.shared(settings), settings, place, conf.compressionCodec(), meter);
    Blocks blocks =
        bounded ? new Blocks(LocalDisk.ofSpark(StateLog.sparkConf(), settings.diskBytesMax())) : null;
    this.values =
        blocks == null
            ? null
            : new Values(log, blocks, settings.memoryRecordsMax(), settings.memoryBytesMax(), this::forget);
    this.rows = new Rows(keySchema.length(), valueSchema.length(), values);
    this.loader =
        new Loader(
            log, blocks, keySchema.length(), valueSchema.length(),
            (key, value) ->
                StateStoreProvider$.MODULE$.validateStateRowFormat(key, keySchema, value, valueSchema, id, conf));
    this.cleaning = new Cleaning(log);
    this.versions = new Versions(conf.maxVersionsToRetainInMemory());
    this.snapshots = new Snapshots(log, values, versions, id, conf, hadoop);
    this.commits = new Commits(log, values, versions, snapshots, id, conf, hadoop);
  }

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  @Override
  public StateStore getStore(long version, Option<String> uniqueId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    Version loaded =
        loadEmpty ? empty(version, textOf(uniqueId)) : load(version, uniqueId);
    return write(reader(loaded), forceSnapshotOnCommit);
  }

  @Override
  public ReadStateStore getReadStore(long version, Option<String> uniqueId) {
    return reader(load(version, uniqueId));
  }

  /** What has been loaded for reading is not loaded again for writing. */
  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore, long version, Option<String> uniqueId, boolean forceSnapshotOnCommit) {
    return readStore instanceof ReadStore read && read.version() == version
        ? write(read, forceSnapshotOnCommit)
        : getStore(version, uniqueId, forceSnapshotOnCommit, false);
  }

  /** A version from the snapshot of an earlier one, for Spark's reader of state. */
  @Override
  public StateStore replayStateFromSnapshot(
      long snapshotVersion, long endVersion, boolean readOnly, Option<String> snapshotUniqueId,
      Option<String> endUniqueId) {
    return write(reader(replayed(snapshotVersion, endVersion, snapshotUniqueId, endUniqueId)), false);
  }

  @Override
  public ReadStateStore replayReadStateFromSnapshot(
      long snapshotVersion, long endVersion, Option<String> snapshotUniqueId, Option<String> endUniqueId) {
    return reader(replayed(snapshotVersion, endVersion, snapshotUniqueId, endUniqueId));
  }

  /** What the commits of these versions changed, for Spark's reader of state. */
  @Override
  public NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> getStateStoreChangeDataReader(
      long startVersion, long endVersion, Option<String> columnFamily, Option<String> endUniqueId) {
    if (columnFamily.isDefined()) {
      ReadStore.check(columnFamily.get());
    }
    try {
      List<Lineage.Delta> deltas = new History(log).deltas(startVersion - 1, endVersion, textOf(endUniqueId));
      return new ChangeFeed(log, keySchema.length(), valueFields, deltas);
    } catch (IOException | InterruptedException error) {
      throw Failures.reading(error);
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return Metrics.supported();
  }

  /** Spark's maintenance asks for this where a store is unloaded after each commit, else for the two below. */
  @Override
  public void doMaintenance() {
    doSnapshotMaintenance();
    doCleanupMaintenance();
  }

  /** Write a snapshot of the newest version, if enough versions have been committed since the last. */
  @Override
  public void doSnapshotMaintenance() {
    Version newest = versions.newest();
    if (newest != null) {
      maintain(() -> snapshots.takeIfBehind(newest, conf.minDeltasForSnapshot()));
    }
  }

  /** Remove the versions that are no longer to be retained. */
  @Override
  public void doCleanupMaintenance() {
    Version newest = versions.newest();
    if (newest != null) {
      maintain(() -> cleaning.clean(newest.number(), conf.minVersionsToRetain()));
    }
  }

  /** Something that can be done later as well. */
  private interface Maintenance {
    void run() throws IOException, InterruptedException;
  }

  /** What fails for want of the service is done the next time; to fail would have Spark unload a store that is sound. */
  private void maintain(Maintenance maintenance) {
    try {
      maintenance.run();
    } catch (IOException error) {
      LOG.warn("maintenance of {} is put off", log.place().path(), error);
    } catch (InterruptedException error) {
      throw Failures.committing(error);
    }
  }

  @Override
  public void close() {
    versions.clear();
    if (values != null) {
      values.blocks().disk().close();
    }
  }

  /** After a value could not be read: the next try loads what it needs. */
  private void forget() {
    versions.clear();
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

  // ---- loading

  private Version load(long version, Option<String> uniqueId) {
    if (version < 0) {
      throw Failures.unexpectedVersion(version);
    }
    if (version == 0) {
      return empty(0, null);
    }
    long begun = System.nanoTime();
    try {
      return loaded(version, textOf(uniqueId));
    } catch (IOException | InterruptedException error) {
      throw Failures.reading(error);
    } finally {
      meter.loadedNs.add(System.nanoTime() - begun);
    }
  }

  private Version loaded(long version, String uid) throws IOException, InterruptedException {
    Version present = uid == null ? null : versions.find(version, uid);
    if (present != null) {
      return present;
    }
    Manifest manifest = log.manifest(version, uid);
    present = versions.find(version, manifest.uid());
    if (present != null) {
      return present;
    }
    Version loaded = versions.make(() -> load(manifest));
    LOG.info("loaded version {} of {}: {} records", version, log.place().path(), loaded.entries().size());
    return loaded;
  }

  /**
   * Later versions build on the newest snapshot that is known, even where the manifest is older than that. Where values
   * stay in the table they have to be found there: what came before the snapshot may be removed.
   */
  private Version load(Manifest manifest) throws IOException, InterruptedException {
    Manifest known = bounded ? versions.onto(manifest) : manifest;
    Version nearest = nearest(known.lineage());
    return nearest == null
        ? loader.load(onSnapshot(known), empty(0, null), prefixes())
        : loader.load(known, nearest, prefixes());
  }

  /**
   * The nearest version in memory. Where values stay in the table it has to build on the same snapshot: of what is older
   * than that, somebody else may have removed it.
   */
  private Version nearest(Lineage lineage) {
    Version nearest = versions.nearest(lineage);
    boolean elsewhere =
        bounded && nearest != null && !Objects.equals(versions.lineageOf(nearest).base(), lineage.base());
    return elsewhere ? null : nearest;
  }

  /** Whoever committed the version may have written a snapshot of it afterwards, and gone. */
  private Manifest onSnapshot(Manifest manifest) throws IOException, InterruptedException {
    if (manifest.lineage().deltas().size() < conf.minDeltasForSnapshot()) {
      return manifest;
    }
    Lineage.Base base = log.snapshotOf(manifest.version(), manifest.uid());
    if (base == null) {
      return manifest;
    }
    versions.build(base);
    return manifest.onto(base);
  }

  private Version replayed(long snapshotVersion, long endVersion, Option<String> snapshotUid, Option<String> endUid) {
    try {
      Manifest manifest = new History(log).from(snapshotVersion, textOf(snapshotUid), endVersion, textOf(endUid));
      return loader.load(manifest, empty(0, null), prefixes());
    } catch (IOException | InterruptedException error) {
      throw Failures.reading(error);
    }
  }

  private static String textOf(Option<String> text) {
    return text.isEmpty() ? null : text.get();
  }

  private Version empty(long version, String uid) {
    Entries none = Entries.empty(!bounded);
    return new Version(version, uid, Lineage.EMPTY, none, prefixColumns == 0 ? null : Entries.empty(true));
  }

  private ReadStore reader(Version version) {
    return new ReadStore(id, version, rows, prefixes());
  }

  private WriteStore write(ReadStore read, boolean forceSnapshot) {
    try {
      boolean withIdentities = conf.enableStateStoreCheckpointIds();
      String run = hadoop.get(StreamExecution$.MODULE$.RUN_ID_KEY());
      // A run has its place among the others before it commits anything: so one that comes late is known to be late.
      long epoch = withIdentities || run == null ? 0 : Runs.epoch(log, run);
      return new WriteStore(read, commits, log, withIdentities, forceSnapshot, epoch);
    } catch (IOException | InterruptedException error) {
      throw Failures.reading(error);
    }
  }

  private Prefixes prefixes() {
    return prefixColumns == 0 ? null : new Prefixes(keySchema, prefixColumns);
  }

  // ---- beginning

  private static int prefixColumns(KeyStateEncoderSpec encoder) {
    if (encoder instanceof PrefixKeyScanStateEncoderSpec prefix) {
      int columns = prefix.numColsPrefixKey();
      if (columns < 1 || columns >= prefix.keySchema().length()) {
        throw org.apache.spark.sql.execution.streaming.state.StateStoreErrors$.MODULE$
            .incorrectNumOrderingColsForPrefixScan(Integer.toString(columns));
      }
      return columns;
    }
    if (encoder instanceof NoPrefixKeyStateEncoderSpec) {
      return 0;
    }
    throw Failures.unsupported(encoder.getClass().getSimpleName());
  }

  /** Spark's reader of state finds partitions by their directories in the checkpoint. */
  private void makeVisible(StateStoreId store) {
    Path path = store.storeCheckpointLocation();
    try {
      path.getFileSystem(hadoop).mkdirs(path);
    } catch (IOException error) {
      throw new IllegalStateException("cannot make " + path, error);
    }
  }
}
