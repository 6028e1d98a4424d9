package tableside.state.log;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedSet;
import java.util.StringJoiner;
import java.util.TreeSet;
import tableside.state.http.Key;
import tableside.state.http.Operation;
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
    Outcome floor = log.applyOne(new Operation.Get(log.keys().floor(), null));
    long from = floor.absent() ? 1 : floor.value().path("version").asLong(1);
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
    List<Operation> attempts = new ArrayList<>();
    for (long version = from; version < from + VERSIONS_PER_CALL; version++) {
      attempts.add(new Operation.Get(log.keys().attempts(version), null));
    }
    List<Operation> manifests = new ArrayList<>();
    List<Operation> descriptions = new ArrayList<>();
    boolean any = false;
    long version = from;
    for (Outcome attempt : log.apply(attempts)) {
      any |= !attempt.absent();
      manifests.add(read(log.keys().manifest(version, null)));
      for (String uid : AttemptLog.names(attempt, "uids")) {
        manifests.add(read(log.keys().manifest(version, uid)));
      }
      for (String name : AttemptLog.names(attempt, "snapshots")) {
        descriptions.add(read(log.keys().snapshot(version, name)));
      }
      version++;
    }
    collect(manifests, versions);
    collect(descriptions, snapshots);
    return any;
  }

  private static Operation read(Key key) {
    return new Operation.Get(key, List.of("version"));
  }

  private void collect(List<Operation> gets, SortedSet<Long> numbers) throws IOException, InterruptedException {
    for (Outcome outcome : log.apply(gets)) {
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
