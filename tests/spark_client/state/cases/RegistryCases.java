package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import scala.Option;

/** Any provider in the registry of an executor: lookup by run, periodic maintenance, unloading. */
final class RegistryCases {
  private RegistryCases() {}

  public static void storesAreLoadedUnloadedAndReloaded(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    StateStoreId id = query.storeId(0, 0, "default");
    try {
      Check.that(!StateStore.isLoaded(query.providerId(id)), "nothing is loaded yet");
      got(query, id, 0).put("a", 1, 1).commit();
      Check.that(StateStore.isLoaded(query.providerId(id)), "it is loaded");
      got(query, id, 1).put("b", 1, 2).commit();
      State older = got(query, id, 1);
      Check.equal(older.content(), Map.of("a/1", 1));
      older.abort();
      StateStore.removeFromLoadedProvidersAndClose(query.providerId(id));
      Check.that(!StateStore.isLoaded(query.providerId(id)), "it is unloaded");
      State again = got(query, id, 2);
      Check.equal(again.content(), Map.of("a/1", 1, "b/1", 2));
      again.put("c", 1, 3).commit();
      StateStore$.MODULE$.unloadAll();
      ReadStateStore reading = read(query, id, 3);
      Check.equal(State.content(reading), Map.of("a/1", 1, "b/1", 2, "c/1", 3));
      reading.release();
    } finally {
      StateStore.stop();
    }
  }

  /** An aggregation reads with a read store and then upgrades it to a write store. */
  public static void aReadStoreIsUpgradedInATask(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    StateStoreId id = query.storeId(0, 0, "default");
    try {
      got(query, id, 0).put("a", 1, 1).commit();
      for (long version = 1; version < 4; version++) {
        ReadStateStore reading = read(query, id, version);
        Check.equal(State.content(reading).size(), (int) version);
        State state = written(query, reading, id, version);
        state.put("b", (int) version, 1).commit();
      }
      State last = got(query, id, 4);
      Check.equal(last.content().size(), 4);
      last.abort();
    } finally {
      StateStore.stop();
    }
  }

  /** A later run of the query has its own provider objects for the same state. */
  public static void eachRunHasItsOwnProviders(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    StateStoreId id = query.storeId(0, 0, "default");
    try {
      got(query, id, 0).put("a", 1, 1).commit();
      Query again = query.restarted();
      Check.that(!StateStore.isLoaded(again.providerId(id)), "the new run has none yet");
      State state = got(again, id, 1);
      Check.equal(state.content(), Map.of("a/1", 1));
      state.put("b", 1, 2).commit();
      Check.that(StateStore.isLoaded(again.providerId(id)), "the new run has its own");
    } finally {
      StateStore.stop();
    }
  }

  public static void maintenanceRunsBeforeAStoreIsUnloaded(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.minDeltasForSnapshot", 2);
    StateStoreId id = query.storeId(0, 0, "default");
    try {
      for (int version = 0; version < 4; version++) {
        got(query, id, version).put("a", version, version).commit();
      }
      StateStore.doMaintenanceAndUnload(query.providerId(id));
      Check.that(!StateStore.isLoaded(query.providerId(id)), "it is unloaded");
      if (query.ours()) {
        Stored stored = Stored.of(arguments, query.place(0));
        Check.that(!stored.items("snapshot/00000000000000000004/").isEmpty(), "a snapshot was written before that");
      }
      State state = got(query, id, 4);
      Check.equal(state.content().size(), 4);
      state.abort();
    } finally {
      StateStore.stop();
    }
  }

  /** Spark's timer maintains loaded stores. A store whose service is unavailable stays loaded. */
  public static void postponedMaintenanceUnloadsNoStore(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("stateStore.maintenanceInterval", "100ms");
    query.conf("stateStore.minDeltasForSnapshot", 2).conf("minBatchesToRetain", 1);
    Query away = query.restarted();
    StateStoreId good = query.storeId(0, 0, "default");
    StateStoreId bad = query.storeId(0, 1, "default");
    StateStore.stop();
    try (Network network = Network.before(away)) {
      AtomicInteger refused = new AtomicInteger();
      network.now((request, way) -> {
        boolean maintains = request.has("update", "attempts/") && request.body().toString().contains("snapshots");
        maintains |= request.has("put", "snapshot/");
        return maintains && refused.incrementAndGet() > 0 ? Network.REFUSED.meet(request, way) : way.pass();
      });
      for (int version = 0; version < 2; version++) {
        got(query, good, version).put("a", version, version).commit();
        got(away, bad, version).put("a", version, version).commit();
      }
      hasSnapshot(Stored.of(arguments, query.place(0)));
      comesAbout(() -> refused.get() > 0, "maintenance of the one was tried");
      Check.that(StateStore.isLoaded(away.providerId(bad)), "the one whose table is away is not unloaded");
      Check.that(StateStore.isLoaded(query.providerId(good)), "nor is the other one");
      Check.equal(Stored.of(arguments, query.place(1)).items("snapshot/"), List.of());
      network.now(Network.NONE);
      hasSnapshot(Stored.of(arguments, query.place(1)));
      State state = got(away, bad, 2);
      Check.equal(state.content(), Map.of("a/0", 0, "a/1", 1));
      state.abort();
    } finally {
      StateStore.stop();
    }
  }

  /** Waits until the timer has written a snapshot. */
  private static void hasSnapshot(Stored stored) throws Exception {
    comesAbout(() -> !stored.items("snapshot/").isEmpty(), "the timer maintains it");
  }

  private static void comesAbout(Callable<Boolean> condition, String message) throws Exception {
    for (int round = 0; round < 600 && !condition.call(); round++) {
      Thread.sleep(100);
    }
    Check.that(condition.call(), message);
  }

  private static State got(Query query, StateStoreId id, long version) {
    Option<String> uid = query.idOf(id, version);
    StateStore store =
        StateStore$.MODULE$.get(
            query.providerId(id),
            SparkRows.KEY,
            SparkRows.NUMBER,
            query.keys(),
            version,
            uid,
            Option.empty(),
            false,
            query.storeConf(),
            query.hadoop(),
            false);
    return new State(query, store, uid);
  }

  private static ReadStateStore read(Query query, StateStoreId id, long version) {
    return StateStore.getReadOnly(
        query.providerId(id),
        SparkRows.KEY,
        SparkRows.NUMBER,
        query.keys(),
        version,
        query.idOf(id, version),
        Option.empty(),
        false,
        query.storeConf(),
        query.hadoop(),
        false);
  }

  private static State written(Query query, ReadStateStore reading, StateStoreId id, long version) {
    StateStoreProviderId provider = query.providerId(id);
    Option<String> uid = query.idOf(id, version);
    StateStore store =
        StateStore.getWriteStore(
            reading,
            provider,
            SparkRows.KEY,
            SparkRows.NUMBER,
            query.keys(),
            version,
            uid,
            Option.empty(),
            false,
            query.storeConf(),
            query.hadoop(),
            false);
    return new State(query, store, uid);
  }
}
