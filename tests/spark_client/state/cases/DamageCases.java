package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import java.util.zip.CRC32C;

/** Missing or damaged records are not needed, or cause an error that names them: never other data or an empty state. */
final class DamageCases {
  private static final int RECORDS = 400;

  private DamageCases() {}

  public static void aChunkOfADeltaIsMissing(JsonNode arguments) throws Exception {
    missing(arguments, "delta/", "CANNOT_READ_DELTA_FILE_NOT_EXISTS");
  }

  public static void withoutAChunkOfASnapshotThePreviousPartsAreUsed(JsonNode arguments) throws Exception {
    recovers(arguments, Stored::delete);
  }

  public static void aDamagedSnapshotIsReplaced(JsonNode arguments) throws Exception {
    recovers(arguments, DamageCases::changeOneByte);
  }

  public static void aTruncatedSnapshotIsReplaced(JsonNode arguments) throws Exception {
    recovers(arguments, DamageCases::truncate);
  }

  public static void aSnapshotThatIsNoBase64IsReplaced(JsonNode arguments) throws Exception {
    recovers(arguments, DamageCases::noBase64);
  }

  /** A delta before a snapshot is not needed, even if the manifest does not name the snapshot. */
  public static void aDamagedDeltaBeforeASnapshotIsNotNeeded(JsonNode arguments) throws Exception {
    Query query = written(arguments, false);
    try (Partition partition = query.restarted().open()) {
      partition.reading(2).release();
      partition.provider.doSnapshotMaintenance();
    }
    Stored stored = Stored.of(arguments, query.place(0));
    stored.delete(stored.items("delta/00000000000000000001").get(0));
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(3), content(3));
    }
  }

  public static void theErrorNamesTheVersionsThatAreThere(JsonNode arguments) throws Exception {
    Query query = written(arguments, true);
    Stored stored = Stored.of(arguments, query.place(0));
    stored.delete(last(stored, "snapshot/"));
    changeOneByte(stored, last(stored, "delta/00000000000000000001"));
    try (Partition partition = query.restarted().open()) {
      String condition = "CANNOT_LOAD_STATE_STORE.CANNOT_READ_MISSING_SNAPSHOT_FILE";
      Throwable thrown = Check.fails(condition, () -> partition.at(3));
      Check.says(thrown, "the table has versions 1 to 3 and snapshots of versions 2");
    }
  }

  public static void aChunkOfADeltaIsOfOtherBytes(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", DamageCases::changeOneByte);
  }

  public static void aChunkIsNoBase64(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", DamageCases::noBase64);
  }

  public static void aChunkHasNoData(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", (stored, item) -> stored.change(item, value -> value.remove("data")));
  }

  public static void aChunkHasNoChecksum(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", (stored, item) -> stored.change(item, value -> value.remove("crc")));
  }

  public static void aChunkHoldsAnothersData(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", (stored, item) -> stored.put(item, stored.value(stored.items("delta/").get(0))), "");
  }

  public static void aChunkIsShortWithTheRightChecksum(JsonNode arguments) throws Exception {
    damaged(arguments, "delta/", DamageCases::truncate);
  }

  public static void aManifestCountsLessChunks(JsonNode arguments) throws Exception {
    damaged(
        arguments,
        "version/00000000000000000003",
        (stored, item) -> stored.change(item, value -> ((ObjectNode) last(value)).put("chunks", 1)),
        "");
  }

  public static void aManifestHasLostADelta(JsonNode arguments) throws Exception {
    damaged(
        arguments,
        "version/00000000000000000003",
        (stored, item) ->
            stored.change(item, value -> ((ArrayNode) value.get("deltas")).remove(value.get("deltas").size() - 1)),
        "");
  }

  public static void aManifestIsOfAFormatToCome(JsonNode arguments) throws Exception {
    damaged(
        arguments, "version/00000000000000000003", (stored, item) -> stored.change(item, value -> value.put("format", 2)));
  }

  public static void aManifestHasLostItsMembers(JsonNode arguments) throws Exception {
    damaged(
        arguments,
        "version/00000000000000000003",
        (stored, item) -> stored.change(item, value -> value.remove(java.util.List.of("deltas", "base"))));
  }

  public static void aManifestIsMissing(JsonNode arguments) throws Exception {
    missing(arguments, "version/00000000000000000003", "CANNOT_READ_STREAMING_STATE_FILE");
  }

  /** A damaged version does not affect another one. */
  public static void anOlderVersionIsStillGood(JsonNode arguments) throws Exception {
    Query query = written(arguments, false);
    Stored stored = Stored.of(arguments, query.place(0));
    stored.delete(stored.items("delta/00000000000000000003").get(0));
    try (Partition partition = query.restarted().open()) {
      Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.at(3));
      Check.equal(partition.content(2).size(), 2 * RECORDS);
    }
  }

  /** The version is loaded from the parts before the snapshot. The next commit writes another snapshot. */
  private static void recovers(JsonNode arguments, BiConsumer<Stored, String> damage) throws Exception {
    Query query = written(arguments, true).conf("minBatchesToRetain", 1);
    Stored stored = Stored.of(arguments, query.place(0));
    damage.accept(stored, last(stored, "snapshot/"));
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(3), content(3));
      partition.provider.doCleanupMaintenance();
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(3), content(3));
      partition.commit(3, state -> state.put("k", 0, 7));
    }
    for (int version = 1; version <= 3; version++) {
      stored.items("delta/0000000000000000000" + version).forEach(stored::delete);
    }
    try (Partition partition = query.restarted().open()) {
      Map<String, Integer> expected = content(3);
      expected.put("k/0", 7);
      Check.equal(partition.content(4), expected);
    }
  }

  /** The content of a version that {@link #written} commits. */
  private static Map<String, Integer> content(int version) {
    Map<String, Integer> content = new TreeMap<>();
    for (int number = 0; number < version * RECORDS; number++) {
      content.put("k/" + number, number * 7919);
    }
    return content;
  }

  /** Spark's own condition for such a file is the error, and its message names the record. */
  private static void missing(JsonNode arguments, String prefix, String condition) throws Exception {
    Query query = written(arguments, false);
    Stored stored = Stored.of(arguments, query.place(0));
    String item = last(stored, prefix);
    stored.delete(item);
    try (Partition partition = query.restarted().open()) {
      for (int round = 0; round < 2; round++) { // a task is retried
        Throwable thrown = Check.fails("CANNOT_LOAD_STATE_STORE." + condition, () -> partition.at(3));
        Check.that(thrown.getMessage().contains(item + " of " + query.place(0)), thrown.getMessage());
        Check.that(thrown.getMessage().contains("does not exist"), thrown.getMessage());
      }
    }
  }

  private static void damaged(JsonNode arguments, String prefix, BiConsumer<Stored, String> damage) throws Exception {
    damaged(arguments, prefix, damage, null);
  }

  /** @param words expected in the error; null if it names the damaged record */
  private static void damaged(JsonNode arguments, String prefix, BiConsumer<Stored, String> damage, String words)
      throws Exception {
    Query query = written(arguments, false);
    Stored stored = Stored.of(arguments, query.place(0));
    String item = last(stored, prefix);
    damage.accept(stored, item);
    try (Partition partition = query.restarted().open()) {
      for (int round = 0; round < 2; round++) { // a task is retried
        Check.says(
            Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.at(3)),
            words != null ? words : item.startsWith("version") ? "version/00000000000000000003" : item);
        Check.says(Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.reading(3)), query.name);
      }
    }
  }

  /** Three versions of several chunks each, the last one with a snapshot if requested. */
  private static Query written(JsonNode arguments, boolean snapshot) throws Exception {
    Query query = Query.of(arguments).setting("chunk_bytes_max", 1024).conf("stateStore.minDeltasForSnapshot", 2);
    try (Partition partition = query.open()) {
      for (int version = 1; version <= 3; version++) {
        int first = (version - 1) * RECORDS;
        partition.commit(
            version - 1,
            state -> {
              for (int number = first; number < first + RECORDS; number++) {
                state.put("k", number, number * 7919);
              }
            });
        if (snapshot && version == 2) {
          partition.provider.doSnapshotMaintenance();
        }
      }
    }
    return query;
  }

  /** The item before the last with this prefix, in the middle of a read, or the only item. */
  private static String last(Stored stored, String prefix) {
    var items = stored.items(prefix);
    return items.get(Math.max(0, items.size() - 2));
  }

  private static JsonNode last(JsonNode manifest) {
    JsonNode deltas = manifest.get("deltas");
    return deltas.get(deltas.size() - 1);
  }

  private static void changeOneByte(Stored stored, String item) {
    stored.change(
        item,
        value -> {
          byte[] data = bytes(value);
          data[data.length / 2] ^= 1;
          value.put("data", data);
        });
  }

  private static void truncate(Stored stored, String item) {
    stored.change(
        item,
        value -> {
          byte[] data = Arrays.copyOf(bytes(value), bytes(value).length / 2);
          CRC32C checksum = new CRC32C();
          checksum.update(data);
          value.put("data", data).put("crc", checksum.getValue());
        });
  }

  private static void noBase64(Stored stored, String item) {
    stored.change(item, value -> value.put("data", "?no base64!"));
  }

  private static byte[] bytes(ObjectNode value) {
    try {
      return value.get("data").binaryValue();
    } catch (java.io.IOException error) {
      throw new IllegalStateException(error);
    }
  }
}
