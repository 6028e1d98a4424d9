package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The order of a query's runs: each start of the query is a run, and a later one's epoch is greater. So of two attempts to
 * commit one version it is known which is the later one, whatever the clocks say. Needed in checkpoint format v1 only.
 */
final class Runs {
  private static final int REMEMBERED_MAX = 1000;
  private static final Map<String, Long> KNOWN = new ConcurrentHashMap<>();

  private Runs() {}

  /** The epoch of a run, which is given one if it has none yet. */
  static long epoch(StateLog log, String run) throws IOException, InterruptedException {
    String name = log.settings().url() + " " + log.settings().table() + " " + log.place().query() + " " + run;
    Long known = KNOWN.get(name);
    if (known != null) {
      return known;
    }
    if (KNOWN.size() >= REMEMBERED_MAX) {
      KNOWN.clear();
    }
    long epoch = ask(log, run);
    KNOWN.put(name, epoch);
    return epoch;
  }

  private static long ask(StateLog log, String run) throws IOException, InterruptedException {
    JsonNodeFactory json = JsonNodeFactory.instance;
    ObjectNode update = json.objectNode();
    update.putObject("$addToSet").put("runs", run);
    Outcome outcome = log.one(new Operation.Update(log.place().runs(), update, json.objectNode().put("first", 1), true));
    JsonNode runs = outcome.value().path("runs");
    long first = outcome.value().path("first").asLong(1);
    for (int index = 0; index < runs.size(); index++) {
      if (runs.get(index).asText().equals(run)) {
        shorten(log, outcome, first, runs);
        return first + index;
      }
    }
    throw new StateUnreadable(log.place().runs() + " does not keep what is added to it");
  }

  /** Forget the older half where many are remembered; if somebody else writes at the same time, the next run will. */
  private static void shorten(StateLog log, Outcome present, long first, JsonNode runs)
      throws IOException, InterruptedException {
    if (runs.size() <= REMEMBERED_MAX) {
      return;
    }
    int forgotten = REMEMBERED_MAX / 2;
    ObjectNode shorter = JsonNodeFactory.instance.objectNode().put("first", first + forgotten);
    ArrayNode kept = shorter.putArray("runs");
    for (int index = forgotten; index < runs.size(); index++) {
      kept.add(runs.get(index));
    }
    log.apply(List.of(new Operation.Put(log.place().runs(), shorter, false, present.etag())));
  }
}
