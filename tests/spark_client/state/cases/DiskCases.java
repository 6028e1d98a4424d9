package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import tableside.state.log.LocalDiskCases;
import tableside.state.log.StateLog;

/** Copies of blocks on the local disk replace reads from the table. Without copies, the table is read. */
final class DiskCases {
  private static final String CHUNKS = "";

  private DiskCases() {}

  public static void valuesOnTheDiskAreNotReadFromTheTable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 5);
    try (Network network = Network.before(query)) {
      try (Partition partition = query.open()) {
        partition.commitUpTo(1, 12);
        network.forget();
        readTwice(partition, 12);
        Check.equal(network.items("get", CHUNKS), List.of());
        partition.provider.doSnapshotMaintenance();
        partition.commitUpTo(13, 20);
        partition.provider.doSnapshotMaintenance();
        network.forget();
        readTwice(partition, 20);
        Check.equal(network.items("get", CHUNKS), List.of());
      }
      try (Partition partition = query.restarted().open()) {
        partition.at(20).abort();
        network.forget();
        readTwice(partition, 20);
        Check.equal(network.items("get", CHUNKS), List.of());
      }
    }
  }

  public static void lostCopiesAreReadFromTheTable(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 12);
      spoil();
      network.forget();
      readTwice(partition, 12);
      Check.that(!network.items("get", "delta/").isEmpty(), "the table is read");
      network.forget();
      readTwice(partition, 12);
      Check.equal(network.items("get", CHUNKS), List.of());
    }
  }

  public static void aClosedStoreFreesTheDisk(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    List<Path> before = LocalDiskCases.opened(sparksDirectory());
    State reading;
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      Check.equal(openedSince(before).size(), 1);
      reading = partition.at(3);
    }
    Check.equal(openedSince(before), List.of());
    Check.equal(reading.content(), Partition.expected(3)); // the open store reads from the table
    Check.equal(openedSince(before), List.of());
  }

  /** Blocks replaced by snapshots take no space, in a small store as in a large one. */
  public static void replacedBlocksFreeTheDisk(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2).setting("disk_bytes_max", 1 << 30);
    long before = LocalDiskCases.bytes(sparksDirectory());
    try (Partition partition = query.open()) {
      partition.commit(0, state -> putMany(state, 0));
      long most = 0;
      for (int version = 1; version <= 40; version++) {
        int number = version;
        partition.commit(version, state -> putMany(state, number));
        partition.provider.doMaintenance();
        most = Math.max(most, LocalDiskCases.bytes(sparksDirectory()) - before);
      }
      long once = 1_000 * 40;
      Check.that(most > once && most < 6 * once, "some versions of " + once + " bytes and not all: " + most);
    }
  }

  /** Iterators and snapshots do not count as reads by key. */
  public static void onlyReadsByKeyAreCounted(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 9);
      taken(partition, 9);
      partition.content(9);
      partition.provider.doSnapshotMaintenance();
      Check.equal(taken(partition, 9), List.of(0L, 0L, 0L));
      State state = partition.at(9);
      for (int number = 1; number <= 9; number++) {
        state.get("a", number);
      }
      state.abort();
      List<Long> found = taken(partition, 9);
      Check.equal(found.stream().mapToLong(Long::longValue).sum(), 9L);
      Check.that(found.get(0) >= 1 && found.get(1) >= 1, "some are in memory and some on the disk: " + found);
      Check.equal(found.get(2), 0L);
    }
  }

  /** A version that is loaded repeatedly is on the disk once. */
  public static void aReloadedVersionIsCopiedOnce(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("maxBatchesToRetainInMemory", 1);
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 9);
      partition.at(8).abort();
      partition.at(9).abort();
      long bytes = LocalDiskCases.bytes(sparksDirectory());
      for (int round = 0; round < 20; round++) {
        Check.equal(partition.content(8), Partition.expected(8));
        Check.equal(partition.content(9), Partition.expected(9));
      }
      Check.equal(LocalDiskCases.bytes(sparksDirectory()), bytes);
    }
  }

  /** The number of values found in memory, on the disk and in the table since the last call. */
  private static List<Long> taken(Partition partition, long version) {
    State state = partition.at(version);
    var metrics = state.store.metrics();
    state.abort();
    return Stream.of("tablesideCacheHits", "tablesideDiskHits", "tablesideCacheMisses")
        .map(name -> MetricCases.value(metrics, name))
        .toList();
  }

  private static List<Path> openedSince(List<Path> before) throws IOException {
    return LocalDiskCases.opened(sparksDirectory()).stream().filter(file -> !before.contains(file)).toList();
  }

  private static void putMany(State state, int number) {
    for (int key = 0; key < 1_000; key++) {
      state.put("k", key, number);
    }
  }

  private static void readTwice(Partition partition, int version) throws Exception {
    Check.equal(partition.content(version), Partition.expected(version));
    State state = partition.at(version);
    for (int number = 1; number <= version; number++) {
      Check.equal(state.get("a", number), number);
    }
    state.abort();
  }

  private static Path sparksDirectory() {
    return Path.of(org.apache.spark.util.Utils.getLocalDir(StateLog.sparkConf()));
  }

  private static void spoil() throws IOException {
    for (Path file : LocalDiskCases.opened(sparksDirectory())) {
      try (RandomAccessFile spoiled = new RandomAccessFile(file.toFile(), "rw")) {
        spoiled.setLength(0);
      }
    }
  }
}
