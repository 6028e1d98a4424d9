package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Any provider: rejected operations, which leave the state unchanged. */
final class RefusalCases {
  private RefusalCases() {}

  public static void aNullValueIsRefused(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      State state = partition.at(0).put("a", 1, 10);
      for (String name : List.of("a", "b")) {
        Throwable thrown = Check.fails(() -> state.store.put(state.rows.key(name, 1), null, State.FAMILY));
        Check.equal(thrown.toString(), "java.lang.IllegalArgumentException: requirement failed: Cannot put a null value");
      }
      Check.equal(state.content(), Map.of("a/1", 10));
      state.commit();
      Check.equal(partition.content(1), Map.of("a/1", 10));
    }
  }

  /** A row with a null column is a valid value. */
  public static void aRowOfNullIsAValue(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      State state = partition.at(0).put("a", 1, null);
      state.commit();
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(1);
      Check.that(state.store.get(state.rows.key("a", 1), State.FAMILY).isNullAt(0), "the value is a row of null");
      state.abort();
    }
  }

  public static void anAbortedStoreRefusesUpdates(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
      State state = partition.at(1).put("b", 1, 20);
      state.abort();
      refusesUpdates(state);
      Check.equal(partition.content(1), Map.of("a/1", 10));
      Check.fails("CANNOT_LOAD_STATE_STORE", () -> partition.at(2));
    }
  }

  public static void aCommittedStoreRefusesUpdates(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      State state = partition.commit(0, changed -> changed.put("a", 1, 10));
      refusesUpdates(state);
      Check.that(state.store.hasCommitted(), "it stays committed");
      Check.equal(partition.content(1), Map.of("a/1", 10));
    }
  }

  /** Spark may abort a committed store when its task ends. The committed data remains. */
  public static void abortAfterCommitChangesNothing(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      State state = partition.commit(0, changed -> changed.put("a", 1, 10));
      if (query.ours()) {
        state.store.abort();
        Check.equal(partition.content(1), Map.of("a/1", 10));
      }
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(1), Map.of("a/1", 10));
    }
  }

  public static void otherColumnFamiliesAreRefused(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      State state = partition.at(0).put("a", 1, 10);
      Check.fails(() -> state.store.put(state.rows.key("a", 1), state.rows.number(1), "other"));
      Check.fails(() -> state.store.remove(state.rows.key("a", 1), "other"));
      Check.fails(() -> state.store.get(state.rows.key("a", 1), "other"));
      Check.fails(() -> state.store.iterator("other"));
      Check.fails(() -> state.store.prefixScan(state.rows.prefix("a"), "other"));
      Check.fails(() -> state.store.merge(state.rows.key("a", 1), state.rows.number(1), "other"));
      Check.fails(() -> state.store.createColFamilyIfAbsent("other", SparkRows.KEY, SparkRows.NUMBER, null, false, false));
      Check.fails(() -> state.store.removeColFamilyIfExists("other"));
      Check.equal(state.content(), Map.of("a/1", 10));
      state.abort();
    }
  }

  public static void severalValuesOfOneKeyAreRefused(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      State state = partition.at(0).put("a", 1, 10);
      Check.fails(() -> state.store.merge(state.rows.key("a", 1), state.rows.number(1), State.FAMILY));
      if (query.isSparks("HDFS") || query.ours()) {
        Check.fails(() -> state.store.valuesIterator(state.rows.key("a", 1), State.FAMILY));
      }
      Check.equal(state.content(), Map.of("a/1", 10));
      state.abort();
    }
  }

  public static void aScanByPrefixNeedsKeysWithAPrefix(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      State state = partition.at(0).put("a", 1, 10);
      if (query.isSparks("HDFS") || query.ours()) {
        Check.fails(() -> state.named("a"));
      }
      state.abort();
    }
  }

  public static void unsupportedFeaturesAreRefusedAtOpening(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    if (query.isSparks("RocksDB")) {
      return; // it supports both
    }
    StructType numbers = new StructType().add("number", DataTypes.IntegerType, false).add("name", DataTypes.StringType);
    var ordinals = CollectionConverters.asScala(List.<Object>of(0)).toSeq();
    Check.fails(() -> opened(query, numbers, new RangeKeyScanStateEncoderSpec(numbers, ordinals), false, false));
    Check.fails("UNSUPPORTED_FEATURE", () -> opened(query, SparkRows.KEY, query.keys(), true, false));
    Check.fails("", () -> opened(query, SparkRows.KEY, query.keys(), false, true));
  }

  /** Reading with another schema than the state was written with fails, unless validation is disabled. */
  public static void rowsOfAnotherFormatAreDetected(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 10));
    }
    Query other = query.restarted();
    other.valueSchema = SparkRows.THREE;
    try (Partition partition = other.open()) {
      Check.says(Check.fails(() -> readAll(partition)), "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE");
    }
    other.conf("stateStore.formatValidation.enabled", false);
    try (Partition partition = other.open()) {
      readAll(partition);
    }
  }

  private static void readAll(Partition partition) {
    State state = partition.at(1);
    try {
      state.store.get(state.rows.key("a", 1), State.FAMILY);
      var iterator = state.iterator();
      while (iterator.hasNext()) {
        iterator.next();
      }
      iterator.close();
    } finally {
      state.store.abort();
    }
  }

  private static void refusesUpdates(State state) {
    Check.fails(() -> state.put("x", 1, 1));
    Check.fails(() -> state.remove("a", 1));
    Check.fails(() -> state.store.commit());
  }

  private static StateStoreProvider opened(
      Query query, StructType keys, KeyStateEncoderSpec spec, boolean families, boolean multiple) {
    return StateStoreProvider.createAndInit(
        query.providerId(query.storeId(0, 0, "default")),
        keys,
        SparkRows.NUMBER,
        spec,
        families,
        query.storeConf(),
        query.hadoop(),
        multiple,
        Option.empty());
  }
}
