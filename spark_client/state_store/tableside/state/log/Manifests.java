package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import tableside.state.http.Key;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/** Reads and publishes the manifests of a store's versions, and the descriptions of its snapshots. */
public record Manifests(StateLog log) {
  /** Reads the manifest of a version. @throws StateUnreadable if it is missing */
  public Manifest of(long version, String uid) throws IOException, InterruptedException {
    Key key = log.keys().manifest(version, uid);
    Outcome outcome = log.get(key);
    if (outcome.absent()) {
      requireQuery();
      String table = "table " + log.settings().table();
      String reason = " (" + log.retained() + ")";
      throw new StateMissing(
          StateMissing.Part.VERSION,
          key + " in " + table + reason,
          "version " + version + " is not in " + table + ": " + key + " is missing" + reason);
    }
    return parse(key, outcome);
  }

  /**
   * Reads the manifest of a snapshot's version, in either checkpoint format. @throws StateUnreadable if it is missing
   */
  public Manifest of(Lineage.Base base) throws IOException, InterruptedException {
    Key shared = log.keys().manifest(base.version(), null);
    Outcome outcome = log.get(shared);
    if (!outcome.absent()) {
      Manifest manifest = parse(shared, outcome);
      if (manifest.uid().equals(base.uid())) {
        return manifest;
      }
    }
    return of(base.version(), base.uid());
  }

  /** Returns the snapshots of the version with this commit identity. */
  public List<Lineage.Base> snapshotsOf(long version, String uid) throws IOException, InterruptedException {
    Outcome attempts = log.get(log.keys().attempts(version));
    List<Lineage.Base> snapshots = new ArrayList<>();
    for (String name : AttemptLog.names(attempts, "snapshots")) {
      Outcome found = log.get(log.keys().snapshot(version, name));
      if (!found.absent() && found.value().path("uid").asText().equals(uid)) {
        JsonNode json = found.value();
        snapshots.add(
            new Lineage.Base(version, uid, name, json.path("chunks").asInt(), json.path("codec").asText()));
      }
    }
    return snapshots;
  }

  /**
   * Publishes a completely written version in format v2. Its identity is part of the key, so that no other version
   * conflicts.
   */
  public void publish(Manifest manifest) throws IOException, InterruptedException {
    Key key = log.keys().manifest(manifest.version(), manifest.uid());
    Outcome outcome = log.applyOne(new Operation.Put(key, manifest.toJson(), true, null));
    if (outcome.preconditionFailed()) {
      requireOwnManifest(key, manifest); // an earlier attempt at this put succeeded and its response was lost
    }
  }

  /**
   * Publishes a version in format v1, where attempts share one manifest. The first manifest is put if absent. A later
   * attempt replaces that of an earlier one, because Spark is running the batch again.
   *
   * @throws IOException if the manifest is from a later attempt
   */
  public void publishShared(Manifest manifest) throws IOException, InterruptedException {
    Key key = log.keys().manifest(manifest.version(), null);
    Outcome outcome = log.applyOne(new Operation.Put(key, manifest.toJson(), true, null));
    while (outcome.preconditionFailed()) {
      Outcome present = log.get(key);
      if (present.absent()) {
        throw new StateUnreadable(key + " was removed during the commit");
      }
      Manifest other = parse(key, present);
      if (other.uid().equals(manifest.uid())) {
        return;
      }
      if (!other.isOlderThan(manifest)) {
        throw new IOException(
            "version " + manifest.version() + " of " + log.keys().prefix() + " was committed by a later attempt");
      }
      outcome = log.applyOne(new Operation.Put(key, manifest.toJson(), false, present.etag()));
    }
  }

  /** Publishes the description of a completely written snapshot. */
  public void publishSnapshot(Lineage.Base base, long records, long bytes) throws IOException, InterruptedException {
    ObjectNode json = JsonNodeFactory.instance.objectNode();
    json.put("format", 1).put("version", base.version()).put("uid", base.uid()).put("chunks", base.chunks());
    json.put("codec", base.codec()).put("records", records).put("bytes", bytes).put("time", Manifest.now());
    log.applyOne(new Operation.Put(log.keys().snapshot(base.version(), base.snapshot()), json, true, null));
  }

  private void requireOwnManifest(Key key, Manifest manifest) throws IOException, InterruptedException {
    Outcome present = log.get(key, "uid", "attempt", "time");
    if (present.absent() || !present.value().path("uid").asText().equals(manifest.uid())) {
      throw new StateUnreadable(key + " exists with different content");
    }
  }

  private static Manifest parse(Key key, Outcome outcome) throws StateUnreadable {
    try {
      return Manifest.of(outcome.value());
    } catch (IllegalArgumentException error) {
      throw new StateUnreadable(key + " is damaged: " + error.getMessage(), error);
    }
  }

  /** @throws StateUnreadable if the table does not exist, or is one without state of the query */
  private void requireQuery() throws IOException, InterruptedException {
    Outcome query = log.get(log.keys().description());
    if (query.absent()) {
      String why = query.tableAbsent() ? " does not exist (table_not_found) and" : "";
      throw new StateUnreadable(
          "table " + log.settings().table() + " at " + log.settings().url() + why + " has no state of query "
              + log.keys().query() + " with checkpoint " + log.keys().checkpoint() + ". Check"
              + " spark.tableside.state.table and spark.tableside.state.url, or restore the table, and keep the"
              + " checkpoint");
    }
  }
}
