package tableside.state.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import tableside.state.http.Operation;
import tableside.state.http.Outcome;

/**
 * Numbers a query's runs. Each start of the query is a run, and a later run has a greater epoch. Of two attempts to
 * commit one version, the later one is therefore known without clocks. Only checkpoint format v1 needs this.
 */
public final class RunEpochs {
  private static final int RUNS_MAX = 1000;
  private static final Map<String, Long> EPOCHS = new ConcurrentHashMap<>();

  private RunEpochs() {}

  /** Returns the epoch of a run, and assigns one if the run has none yet. */
  public static long epoch(StateLog log, String run) throws IOException, InterruptedException {
    String name = log.settings().url() + " " + log.settings().table() + " " + log.keys().query() + " " + run;
    Long known = EPOCHS.get(name);
    if (known != null) {
      return known;
    }
    if (EPOCHS.size() >= RUNS_MAX) {
      EPOCHS.clear();
    }
    long epoch = assign(log, run);
    EPOCHS.put(name, epoch);
    return epoch;
  }

  private static long assign(StateLog log, String run) throws IOException, InterruptedException {
    JsonNodeFactory json = JsonNodeFactory.instance;
    ObjectNode update = json.objectNode();
    update.putObject("$addToSet").put("runs", run);
    ObjectNode first = json.objectNode().put("first", 1);
    Outcome outcome = log.applyOne(new Operation.Update(log.keys().runs(), update, first, true));
    JsonNode runs = outcome.value().path("runs");
    long firstEpoch = outcome.value().path("first").asLong(1);
    for (int index = 0; index < runs.size(); index++) {
      if (runs.get(index).asText().equals(run)) {
        dropOldest(log, outcome, firstEpoch, runs);
        return firstEpoch + index;
      }
    }
    throw new StateUnreadable(log.keys().runs() + " does not contain the run after it was added");
  }

  /** Removes the older half of a long list. A concurrent write makes this fail; the next run then does it. */
  private static void dropOldest(StateLog log, Outcome present, long first, JsonNode runs)
      throws IOException, InterruptedException {
    if (runs.size() <= RUNS_MAX) {
      return;
    }
    int forgotten = RUNS_MAX / 2;
    ObjectNode shorter = JsonNodeFactory.instance.objectNode().put("first", first + forgotten);
    ArrayNode remaining = shorter.putArray("runs");
    for (int index = forgotten; index < runs.size(); index++) {
      remaining.add(runs.get(index));
    }
    log.apply(List.of(new Operation.Put(log.keys().runs(), shorter, false, present.etag())));
  }
}
