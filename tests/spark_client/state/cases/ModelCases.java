package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/** Any provider: random steps, compared with a map for each version. */
final class ModelCases {
  private static final int STEPS = 25;
  private static final int RETAINED = 3;

  private ModelCases() {}

  /** @param arguments has `seed` and `sequences` in addition */
  public static void randomSteps(JsonNode arguments) throws Exception {
    for (int number = 0; number < arguments.get("sequences").asInt(); number++) {
      long seed = arguments.get("seed").asLong() + number;
      Model model = new Model(arguments, new Random(seed));
      try {
        model.run();
      } catch (Throwable error) {
        throw new AssertionError("seed " + seed + ", after " + model.done, error);
      }
    }
  }

  private static final class Model {
    private final Random dice;
    private Query query;
    private final List<Map<String, Integer>> versions = new ArrayList<>();
    private final List<String> done = new ArrayList<>();
    private Partition partition;
    private Partition elsewhere; // opened by another executor, and possibly outdated
    private int highest; // the highest version ever committed, which retention counts from

    Model(JsonNode arguments, Random dice) throws Exception {
      this.dice = dice;
      this.query = Query.of(arguments).conf("minBatchesToRetain", RETAINED);
      query.conf("stateStore.minDeltasForSnapshot", 1 + dice.nextInt(4));
      query.conf("maxBatchesToRetainInMemory", dice.nextInt(4));
      if (query.ours()) {
        query.setting("deltas_max", 1 + dice.nextInt(6));
        query.setting("chunk_bytes_max", 1024);
      }
      query.prefixes = dice.nextBoolean();
      query.keySchema = dice.nextBoolean() ? SparkRows.KEY : SparkRows.TWO_NUMBERS;
      versions.add(new TreeMap<>());
      partition = query.open();
      elsewhere = query.open();
    }

    void run() {
      try {
        for (int step = 0; step < STEPS; step++) {
          step();
        }
        reopen(true);
        for (int version = oldest(); version <= latest(); version++) {
          Check.equal(partition.content(version), versions.get(version));
        }
      } finally {
        partition.close();
        elsewhere.close();
      }
    }

    private void step() {
      int drawn = dice.nextInt(100);
      if (drawn < 55) {
        commit(latest());
      } else if (drawn < 63 && query.ours()) { // Spark's own fails if an abandoned version had a snapshot
        commit(Math.max(oldest(), latest() - 1 - dice.nextInt(2)));
      } else if (drawn < 73) {
        abort();
      } else if (drawn < 77) {
        reopen(dice.nextBoolean());
      } else if (drawn < 82 && query.ours()) {
        move();
      } else if (drawn < 90) {
        done.add("maintain");
        partition.provider.doMaintenance();
      } else {
        int version = latest() - dice.nextInt(latest() - oldest() + 1);
        done.add("read " + version);
        Check.equal(partition.content(version), versions.get(version));
      }
    }

    private int latest() {
      return versions.size() - 1;
    }

    private int oldest() {
      return Math.max(0, Math.min(latest(), highest - RETAINED));
    }

    private void commit(int version) {
      done.add("commit after " + version);
      State state = partition.at(version);
      Map<String, Integer> expected = changed(state, versions.get(version));
      state.commit();
      Check.equal(state.keys(), (long) expected.size());
      Check.equal(state.content(), expected);
      versions.subList(version + 1, versions.size()).clear();
      versions.add(expected);
      highest = Math.max(highest, latest());
    }

    private void abort() {
      done.add("abort");
      State state = partition.at(latest());
      changed(state, versions.get(latest()));
      state.abort();
    }

    /** Spark assigns the partition to another executor, and possibly back later. */
    private void move() {
      done.add("move");
      Partition before = partition;
      partition = elsewhere;
      elsewhere = before;
      Check.equal(partition.content(latest()), versions.get(latest()));
    }

    private void reopen(boolean restart) {
      done.add(restart ? "restart" : "open anew");
      partition.close();
      if (restart) {
        query = query.restarted();
        elsewhere.close();
        elsewhere = query.open();
      }
      partition = query.open();
    }

    private Map<String, Integer> changed(State state, Map<String, Integer> before) {
      Map<String, Integer> content = new TreeMap<>(before);
      for (int left = dice.nextInt(30); left > 0; left--) {
        String name = "1" + dice.nextInt(3);
        int number = dice.nextInt(8);
        int kind = dice.nextInt(10);
        if (kind < 5) {
          int value = dice.nextInt();
          state.put(name, number, value);
          content.put(name + "/" + number, value);
        } else if (kind < 8) {
          state.remove(name, number);
          content.remove(name + "/" + number);
        } else {
          Check.equal(state.get(name, number), content.get(name + "/" + number));
        }
      }
      if (dice.nextInt(3) == 0) {
        Check.equal(state.content(), content);
      }
      if (query.prefixes) {
        Map<String, Integer> named = new TreeMap<>(content);
        named.keySet().removeIf(key -> !key.startsWith("11/"));
        Check.equal(state.named("11"), named);
      }
      return content;
    }
  }
}
