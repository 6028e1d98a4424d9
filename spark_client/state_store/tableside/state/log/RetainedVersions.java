package tableside.state.log;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedSet;
import java.util.StringJoiner;
import java.util.TreeSet;
import tableside.state.http.Key;
import tableside.state.http.Outcome;

/** The versions and snapshots of a store that are in the table, for messages. Their chunks may be damaged. */
final class RetainedVersions {
  private static final int VERSIONS_PER_CALL = 64;

  private final StateLog log;
  private final SortedSet<Long> versions = new TreeSet<>();
  private final SortedSet<Long> snapshots = new TreeSet<>();

  private RetainedVersions(StateLog log) {
    this.log = log;
  }

  /** Reads the versions. They are started without gaps, so a block without any attempt follows the last one. */
  static RetainedVersions read(StateLog log) throws IOException, InterruptedException {
    RetainedVersions retained = new RetainedVersions(log);
    long from = log.floor();
    while (retained.readBlock(from)) {
      from += VERSIONS_PER_CALL;
    }
    return retained;
  }

  /** For example "the table has versions 11 to 14, 16 and snapshots of versions 10". */
  @Override
  public String toString() {
    String found = versions.isEmpty() ? "no version" : "versions " + ranges(versions);
    return "the table has " + found + (snapshots.isEmpty() ? "" : " and snapshots of versions " + ranges(snapshots));
  }

  private boolean readBlock(long from) throws IOException, InterruptedException {
    List<Key> manifests = new ArrayList<>();
    List<Key> descriptions = new ArrayList<>();
    boolean any = false;
    long version = from;
    for (Outcome attempt : log.get(StoreKeys.range(from, from + VERSIONS_PER_CALL, log.keys()::attempts))) {
      any |= !attempt.absent();
      manifests.add(log.keys().manifest(version, null));
      for (String uid : AttemptLog.names(attempt, "uids")) {
        manifests.add(log.keys().manifest(version, uid));
      }
      for (String name : AttemptLog.names(attempt, "snapshots")) {
        descriptions.add(log.keys().snapshot(version, name));
      }
      version++;
    }
    collect(manifests, versions);
    collect(descriptions, snapshots);
    return any;
  }

  private void collect(List<Key> keys, SortedSet<Long> numbers) throws IOException, InterruptedException {
    for (Outcome outcome : log.get(keys, "version")) {
      if (!outcome.absent()) {
        numbers.add(outcome.value().path("version").asLong());
      }
    }
  }

  private static String ranges(SortedSet<Long> numbers) {
    StringJoiner ranges = new StringJoiner(", ");
    for (long first : numbers) {
      if (!numbers.contains(first - 1)) {
        long last = first;
        while (numbers.contains(last + 1)) {
          last++;
        }
        ranges.add(first == last ? "" + first : first + " to " + last);
      }
    }
    return ranges.toString();
  }
}
