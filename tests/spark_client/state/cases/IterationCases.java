package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** Any provider: iterators and prefix scans. */
final class IterationCases {
  private static final int MANY = 200;

  private IterationCases() {}

  public static void puttingWhileIterating(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, IterationCases::putMany);
      State state = partition.at(1);
      Map<String, Integer> seen = new TreeMap<>();
      StateStoreIterator<UnsafeRowPair> iterator = state.iterator();
      while (iterator.hasNext()) {
        UnsafeRowPair pair = iterator.next();
        int number = pair.key().getInt(1);
        Integer before = seen.put(SparkRows.name(pair.key()), pair.value().getInt(0));
        Check.that(before == null, "a key is seen once");
        if (pair.key().getUTF8String(0).toString().equals("k") && number < MANY) {
          state.put("k", number, -number).put("new", number, number);
        }
      }
      iterator.close();
      for (int number = 0; number < MANY; number++) {
        Check.that(seen.containsKey("k/" + number), "a key that was present throughout is returned: " + number);
      }
      state.commit();
      Map<String, Integer> content = partition.content(2);
      Check.equal(content.size(), 2 * MANY);
      Check.equal(content.get("k/7"), -7);
      Check.equal(content.get("new/7"), 7);
    }
  }

  public static void removingWhileIterating(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, IterationCases::putMany);
      State state = partition.at(1);
      StateStoreIterator<UnsafeRowPair> iterator = state.iterator();
      int count = 0;
      while (iterator.hasNext()) {
        UnsafeRowPair pair = iterator.next();
        count++;
        if (pair.key().getInt(1) % 2 == 0) {
          state.store.remove(pair.key(), State.FAMILY);
        }
      }
      iterator.close();
      Check.equal(count, MANY);
      Check.equal(state.content().size(), MANY / 2);
      state.commit();
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2).size(), MANY / 2);
      Check.that(partition.content(2).keySet().stream().noneMatch(key -> key.endsWith("8")), "the even ones are gone");
    }
  }

  public static void anIteratorOpenedAfterAllWritesSeesThemAll(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("b", 1, 1).put("c", 1, 1));
      State state = partition.at(1);
      StateStoreIterator<UnsafeRowPair> early = state.iterator();
      state.put("d", 1, 1).put("a", 1, 2);
      StateStoreIterator<UnsafeRowPair> between = state.iterator();
      state.remove("b", 1).put("e", 1, 1);
      Check.equal(state.content(), Map.of("a/1", 2, "c/1", 1, "d/1", 1, "e/1", 1));
      Check.equal(State.content(early).get("c/1"), 1);
      Map<String, Integer> seen = State.content(between);
      Check.equal(seen.get("a/1"), 2);
      Check.equal(seen.get("d/1"), 1);
      state.abort();
    }
  }

  /** In complete mode, Spark reads the result from the store after its commit. */
  public static void aCommittedStoreCanStillBeIterated(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("b", 1, 1));
      State state = partition.commit(1, changed -> changed.put("a", 1, 2).put("c", 1, 1).remove("b", 1));
      Check.equal(state.content(), Map.of("a/1", 2, "c/1", 1));
      Check.equal(state.get("c", 1), 1);
      partition.commit(2, changed -> changed.put("a", 1, 3));
      Check.equal(partition.content(3), Map.of("a/1", 3, "c/1", 1));
    }
  }

  public static void rowsOfAnIteratorCanBeCopiedAndOutliveIt(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, IterationCases::putMany);
      Map<UnsafeRow, UnsafeRow> copies = new HashMap<>();
      StateStoreIterator<UnsafeRowPair> iterator = partition.at(1).iterator();
      while (iterator.hasNext()) {
        UnsafeRowPair pair = iterator.next();
        copies.put(pair.key().copy(), pair.value().copy());
      }
      iterator.close();
      Check.equal(copies.size(), MANY);
      copies.forEach((key, value) -> Check.equal(value.getInt(0), key.getInt(1)));
    }
  }

  public static void aReturnedRowIsUnchangedWhenItsKeyIsPutAgain(JsonNode arguments) throws Exception {
    try (Partition partition = Query.of(arguments).open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("b", 1, 2));
      State state = partition.at(1);
      UnsafeRow found = state.store.get(state.rows.key("a", 1), State.FAMILY);
      state.put("a", 1, 5).put("b", 1, 6);
      Check.equal(found.getInt(0), 1);
      Check.equal(state.get("a", 1), 5);
      state.abort();
    }
  }

  public static void closingTheProviderDoesNotBreakAnIterator(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Partition partition = query.open();
    partition.commit(0, IterationCases::putMany);
    if (query.isSparks("RocksDB")) {
      partition.close();
      return; // its iterator belongs to the native library
    }
    StateStoreIterator<UnsafeRowPair> iterator = partition.reading(1).iterator(State.FAMILY);
    iterator.next();
    partition.close();
    Check.equal(State.content(iterator).size(), MANY - 1);
  }

  public static void aScanGivesAllKeysWithAPrefixAndNoOthers(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.prefixes = true;
    try (Partition partition = query.open()) {
      State state = partition.at(0).put("a", 1, 1).put("a", 2, 2).put("aa", 1, 3).put("b", 1, 4).put("", 1, 5);
      Check.equal(state.named("a"), Map.of("a/1", 1, "a/2", 2));
      Check.equal(state.named("aa"), Map.of("aa/1", 3));
      Check.equal(state.named(""), Map.of("/1", 5));
      Check.equal(state.named("c"), Map.of());
      state.commit();
      Check.equal(state.named("a"), Map.of("a/1", 1, "a/2", 2));
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(1);
      Check.equal(state.named("a"), Map.of("a/1", 1, "a/2", 2));
      Check.equal(state.named("b"), Map.of("b/1", 4));
      Check.equal(state.named("c"), Map.of());
      Check.equal(state.get("aa", 1), 3);
      Check.equal(state.content().size(), 5);
      state.abort();
    }
  }

  public static void aScanSeesPendingPutsAndRemovals(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.prefixes = true;
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("a", 2, 2).put("b", 1, 3).put("c", 1, 4));
      State state = partition.at(1);
      state.put("a", 1, 11).put("a", 3, 13).remove("a", 2).remove("c", 1).put("d", 1, 14);
      Check.equal(state.named("a"), Map.of("a/1", 11, "a/3", 13));
      Check.equal(state.named("b"), Map.of("b/1", 3));
      Check.equal(state.named("c"), Map.of());
      Check.equal(state.named("d"), Map.of("d/1", 14));
      state.put("a", 2, 12).remove("a", 3);
      Check.equal(state.named("a"), Map.of("a/1", 11, "a/2", 12));
      state.abort();
      State again = partition.at(1);
      Check.equal(again.named("a"), Map.of("a/1", 1, "a/2", 2));
      Check.equal(again.named("d"), Map.of());
      again.remove("a", 1).remove("a", 2).put("e", 1, 5).commit();
      Check.equal(again.named("a"), Map.of());
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(2);
      Check.equal(state.named("a"), Map.of());
      Check.equal(state.named("e"), Map.of("e/1", 5));
      state.abort();
      State old = partition.at(1);
      Check.equal(old.named("a"), Map.of("a/1", 1, "a/2", 2));
      old.abort();
    }
  }

  /** A prefix of fixed size fills its row's buffer, which Spark reuses for the next prefix. */
  public static void aScanByANumber(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.keySchema = SparkRows.TWO_NUMBERS;
    scanned(query, "1", "2", "3");
  }

  /** A string of 27 characters fills the initial buffer of a row too. */
  public static void aScanByAText(JsonNode arguments) throws Exception {
    String most = "k".repeat(27);
    scanned(Query.of(arguments), most + 1, most + 2, most + 3);
  }

  public static void changesDuringAPrefixScan(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.prefixes = true;
    try (Partition partition = query.open()) {
      partition.commit(0, IterationCases::putMany);
      State state = partition.at(1);
      StateStoreIterator<UnsafeRowPair> iterator = state.store.prefixScan(state.rows.prefix("k"), State.FAMILY);
      int count = 0;
      while (iterator.hasNext()) {
        UnsafeRowPair pair = iterator.next();
        count++;
        state.store.remove(pair.key(), State.FAMILY);
        state.put("other", pair.key().getInt(1), 0);
      }
      iterator.close();
      Check.equal(count, MANY);
      Check.equal(state.named("k"), Map.of());
      Check.equal(state.named("other").size(), MANY);
      state.commit();
      Check.equal(partition.content(2).size(), MANY);
    }
  }

  public static void aReadStoreScansToo(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    query.prefixes = true;
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 1).put("a", 2, 2).put("b", 1, 3));
      var reading = partition.reading(1);
      Check.equal(State.content(reading.prefixScan(new SparkRows().prefix("a"), State.FAMILY)), Map.of("a/1", 1, "a/2", 2));
      reading.release();
    }
  }

  /** Scans three prefixes after puts and removals: before the commit, after it, and after a load. */
  private static void scanned(Query query, String one, String two, String three) throws Exception {
    query.prefixes = true;
    try (Partition partition = query.open()) {
      State state = partition.at(0);
      for (String name : List.of(one, two, three)) {
        state.put(name, 1, 1).put(name, 2, 2);
      }
      state.remove(two, 1);
      named(state, Map.of(one, List.of(1, 2), two, List.of(2), three, List.of(1, 2)));
      state.commit();
      State next = partition.at(1);
      named(next, Map.of(one, List.of(1, 2), two, List.of(2), three, List.of(1, 2)));
      next.remove(one, 2).remove(two, 2).put(three, 3, 3);
      named(next, Map.of(one, List.of(1), two, List.of(), three, List.of(1, 2, 3)));
      next.commit();
    }
    try (Partition partition = query.restarted().open()) {
      State state = partition.at(2);
      named(state, Map.of(one, List.of(1), two, List.of(), three, List.of(1, 2, 3)));
      state.remove(three, 2).put(two, 4, 4);
      named(state, Map.of(one, List.of(1), two, List.of(4), three, List.of(1, 3)));
      state.abort();
    }
  }

  private static void named(State state, Map<String, List<Integer>> expected) {
    expected.forEach((name, numbers) -> {
      Map<String, Integer> found = new TreeMap<>();
      numbers.forEach(number -> found.put(name + "/" + number, number));
      Check.equal(state.named(name), found);
    });
  }

  private static void putMany(State state) {
    for (int number = 0; number < MANY; number++) {
      state.put("k", number, number);
    }
  }
}
