package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Path;
import java.util.List;

/** A store with copies of its blocks on the local disk: less is asked of the table, and without them nothing is lost. */
final class DiskCases {
  private static final String CHUNKS = "";

  private DiskCases() {}

  public static void nothingIsAskedOfTheTableAgain(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("stateStore.minDeltasForSnapshot", 5);
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

  public static void whatTheDiskHasLostIsReadFromTheTable(JsonNode told) throws Exception {
    Query query = Query.of(told);
    try (Network network = Network.before(query); Partition partition = query.open()) {
      partition.commitUpTo(1, 12);
      spoil();
      network.forget();
      readTwice(partition, 12);
      Check.that(!network.items("get", "delta/").isEmpty(), "the table is asked");
      network.forget();
      readTwice(partition, 12);
      Check.equal(network.items("get", CHUNKS), List.of());
    }
  }

  public static void aStoreThatIsClosedGivesTheDiskBack(JsonNode told) throws Exception {
    Query query = Query.of(told);
    int before = LocalDiskCases.opened(sparksDirectory()).size();
    State reading;
    try (Partition partition = query.open()) {
      partition.commitUpTo(1, 3);
      Check.equal(LocalDiskCases.opened(sparksDirectory()).size(), before + 1);
      reading = partition.at(3);
    }
    Check.equal(LocalDiskCases.opened(sparksDirectory()).size(), before);
    Check.equal(reading.content(), Partition.expected(3)); // by what is still open, from the table
    Check.equal(LocalDiskCases.opened(sparksDirectory()).size(), before);
  }

  /** What snapshots have replaced, and cleaning has removed, takes no room here either. */
  public static void theDiskDoesNotFillUpWithWhatIsReplaced(JsonNode told) throws Exception {
    Query query = Query.of(told).conf("stateStore.minDeltasForSnapshot", 2).setting("disk_bytes_max", 1 << 20);
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
      Check.that(most > once && most < 12 * once, "some versions of " + once + " bytes and not all: " + most);
    }
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
