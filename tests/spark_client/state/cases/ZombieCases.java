package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import scala.Option;

/** Several attempts at one version: attempts of a task, a batch that runs again, a restarted query. */
final class ZombieCases {
  private ZombieCases() {}

  /** The earlier attempt of a task commits after the later attempt has committed. */
  public static void anEarlierAttemptOfATaskCommitsLate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition first = query.open(); Partition second = query.open()) {
      LocalSpark.inTask(1, () -> first.commit(0, state -> state.put("a", 1, 1)));
      State zombie = LocalSpark.inTask(2, () -> first.at(1).put("zombie", 1, 666).put("a", 1, 666));
      LocalSpark.inTask(3, () -> second.commit(1, state -> state.put("winner", 1, 7)));
      comesLate(query, zombie, 2);
      Check.equal(second.content(2), Map.of("a/1", 1, "winner/1", 7));
      LocalSpark.inTask(4, () -> second.commit(2, state -> state.put("next", 1, 8)));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 1, "winner/1", 7));
      Check.equal(partition.content(3), Map.of("a/1", 1, "winner/1", 7, "next/1", 8));
    }
  }

  public static void aTaskOfAnEarlierRunCommitsLate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    Query later = query.restarted();
    try (Partition first = query.open(); Partition second = later.open()) {
      LocalSpark.inTask(5, () -> first.commit(0, state -> state.put("a", 1, 1)));
      State zombie = LocalSpark.inTask(9, () -> first.at(1).put("zombie", 1, 666));
      LocalSpark.inTask(1, () -> second.commit(1, state -> state.put("winner", 1, 7)));
      comesLate(query, zombie, 9);
      Check.equal(second.content(2), Map.of("a/1", 1, "winner/1", 7));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 1, "winner/1", 7));
    }
  }

  /** The same, but the earlier run has only loaded the state when the later run starts. */
  public static void aTaskOfAnEarlierRunWithoutCommitsCommitsLate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      LocalSpark.inTask(5, () -> partition.commit(0, state -> state.put("a", 1, 1)));
    }
    Query hung = query.restarted();
    Query later = query.restarted();
    try (Partition first = hung.open()) {
      State zombie = LocalSpark.inTask(9, () -> first.at(1).put("zombie", 1, 666));
      try (Partition second = later.open()) {
        LocalSpark.inTask(1, () -> second.commit(1, state -> state.put("winner", 1, 7)));
        comesLate(hung, zombie, 9);
        Check.equal(second.content(2), Map.of("a/1", 1, "winner/1", 7));
      }
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 1, "winner/1", 7));
    }
  }

  /**
   * In format 1, a speculative copy on an executor that knows a newer snapshot commits late. Versions that others
   * committed after it keep their own lineage.
   */
  public static void aSpeculativeCopyWithANewerSnapshotCommitsLate(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments).conf("minBatchesToRetain", 2);
    if (query.format == 2) {
      return;
    }
    try (Partition chosen = query.open(); Partition copied = query.open()) {
      commitInTasks(chosen, 1, 12, 1);
      State late = LocalSpark.inTask(14, () -> copied.at(12)).put("a", 13, 13).put("total", 0, 13);
      copied.provider.doSnapshotMaintenance();
      commitInTasks(chosen, 13, 13, 13);
      commitInTasks(chosen, 14, 14, 15);
      late.commitQuietly();
      commitInTasks(chosen, 15, 15, 16);
      chosen.provider.doCleanupMaintenance();
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(15), Partition.expected(15));
    }
  }

  /** A batch was committed in some partitions only. It runs again, possibly with other data, which prevails. */
  public static void aPartlyCommittedBatchRunsAgain(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition one = query.open(0); Partition two = query.open(1)) {
      one.commit(0, state -> state.put("a", 1, 1));
      two.commit(0, state -> state.put("b", 1, 1));
      one.at(1).put("a", 1, 2).put("abandoned", 1, 1).commitQuietly();
      two.at(1).put("b", 1, 2).abort();
    }
    Query again = query.restarted();
    try (Partition one = again.open(0); Partition two = again.open(1)) {
      Check.equal(one.content(1), Map.of("a/1", 1));
      one.commit(1, state -> state.put("a", 1, 3));
      two.commit(1, state -> state.put("b", 1, 3));
      Check.equal(one.content(2), Map.of("a/1", 3));
      one.commit(2, state -> state.put("a", 2, 4));
      two.commit(2, state -> {});
    }
    Query third = query.restarted();
    try (Partition one = third.open(0); Partition two = third.open(1)) {
      Check.equal(one.content(2), Map.of("a/1", 3));
      Check.equal(one.content(3), Map.of("a/1", 3, "a/2", 4));
      Check.equal(two.content(3), Map.of("b/1", 3));
    }
  }

  /** The same, with the same provider object: it drops the abandoned version from memory. */
  public static void anAbandonedVersionIsReplacedInMemoryToo(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      partition.commit(0, state -> state.put("a", 1, 1));
      partition.at(1).put("abandoned", 1, 1).put("a", 1, 5).commitQuietly();
      partition.commit(1, state -> state.put("kept", 1, 2));
      Check.equal(partition.content(2), Map.of("a/1", 1, "kept/1", 2));
      partition.commit(2, state -> state.put("kept", 2, 3));
      Check.equal(partition.content(3), Map.of("a/1", 1, "kept/1", 2, "kept/2", 3));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(2), Map.of("a/1", 1, "kept/1", 2));
      Check.equal(partition.content(3), Map.of("a/1", 1, "kept/1", 2, "kept/2", 3));
    }
  }

  /** Two actions on one frame run its plan twice: two tasks commit one version with the same data. */
  public static void oneVersionIsCommittedTwiceInOneRun(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    try (Partition partition = query.open()) {
      for (long version = 0; version < 3; version++) {
        for (int action = 0; action < 2; action++) {
          long from = version;
          LocalSpark.inTask(
              2 * version + action, () -> partition.commit(from, state -> state.put("a", (int) from, (int) from)));
        }
      }
      Check.equal(partition.content(3), Map.of("a/0", 0, "a/1", 1, "a/2", 2));
    }
    try (Partition partition = query.restarted().open()) {
      Check.equal(partition.content(3), Map.of("a/0", 0, "a/1", 1, "a/2", 2));
    }
  }

  /** Each identity of a version gives the data that was committed under it. Checkpoint format 2 only. */
  public static void attemptsWithIdentitiesCoexist(JsonNode arguments) throws Exception {
    Query query = Query.of(arguments);
    if (query.format == 1) {
      return;
    }
    try (Partition first = query.open(); Partition second = query.open()) {
      first.commit(0, state -> state.put("a", 1, 1));
      State one = first.at(1).put("one", 1, 1);
      State two = second.at(1).put("two", 1, 2);
      two.commitQuietly();
      one.commitQuietly();
      Option<String> left = one.id();
      Option<String> right = two.id();
      for (Partition partition : new Partition[] {first, second}) {
        Check.equal(partition.content(2, left), Map.of("a/1", 1, "one/1", 1));
        Check.equal(partition.content(2, right), Map.of("a/1", 1, "two/1", 2));
      }
      State third = first.at(2, right).put("three", 1, 3);
      third.commitQuietly();
      Check.equal(second.content(3, third.id()), Map.of("a/1", 1, "two/1", 2, "three/1", 3));
      Check.fails("CANNOT_LOAD_STATE_STORE", () -> first.at(2, Option.apply("no-such-identity")));
    }
  }

  /** Commits each version in a separate task. */
  private static void commitInTasks(Partition partition, long from, long last, long attempt) throws Exception {
    for (long version = from; version <= last; version++) {
      long each = version;
      LocalSpark.inTask(attempt + version - from, () -> {
        partition.commitUpTo(each, each);
        return null;
      });
    }
  }

  /** In format 1 the commit is refused. In format 2 it succeeds, under an identity that no reader uses. */
  private static void comesLate(Query query, State zombie, long attempt) throws Exception {
    if (query.format == 1) {
      LocalSpark.inTask(
          attempt, () -> Check.fails("CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT", () -> zombie.store.commit()));
      Check.that(!zombie.store.hasCommitted(), "the late attempt has not committed");
      zombie.store.abort();
    } else {
      LocalSpark.inTask(attempt, () -> zombie.commitQuietly());
    }
  }
}
