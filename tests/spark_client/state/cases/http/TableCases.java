package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;

/** A table as the state store uses it: the outcomes of operations or the failure, and the counters. */
public final class TableCases {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<Settings, Table> OPEN = new ConcurrentHashMap<>();

  private TableCases() {}

  /** Applies operations. The table stays open for the next case with these settings. */
  public static ObjectNode apply(JsonNode arguments) {
    return applied(table(arguments), arguments);
  }

  /** Returns the parsed settings, or the error that lists the faults. */
  public static String settings(JsonNode arguments) {
    try {
      return read(arguments).toString();
    } catch (IllegalArgumentException faults) {
      return faults.getMessage();
    }
  }

  /** Returns the texts that a used table shows. */
  public static List<String> shown(JsonNode arguments) {
    return List.of(table(arguments).toString(), read(arguments).toString());
  }

  /** Whether only equal settings share a table, for any number of settings. */
  public static List<Boolean> sharing() {
    Table first = Table.shared(numbered(0));
    boolean same = first == Table.shared(numbered(0));
    boolean other = first != Table.shared(numbered(1));
    for (int number = 2; number < 100; number++) Table.shared(numbered(number));
    return List.of(same, other, first != Table.shared(numbered(0)));
  }

  private static Settings numbered(int number) {
    Configuration configuration = new Configuration(false);
    configuration.set("tableside.state.url", "http://127.0.0.1:9");
    configuration.set("tableside.state.table", "t" + number);
    return Settings.of(configuration);
  }

  private static Table table(JsonNode arguments) {
    Settings settings = read(arguments);
    boolean looking = arguments.path("looks_again").asBoolean();
    return OPEN.computeIfAbsent(settings, given -> looking ? new Table(given, Duration.ZERO) : new Table(given));
  }

  private static Settings read(JsonNode arguments) {
    Configuration configuration = new Configuration(false);
    for (Map.Entry<String, JsonNode> setting : arguments.path("settings").properties()) {
      String prefix = setting.getKey().contains(".") ? "" : Settings.PREFIX;
      configuration.set(prefix + setting.getKey(), setting.getValue().asText());
    }
    return Settings.of(configuration);
  }

  private static ObjectNode applied(Table table, JsonNode arguments) {
    ObjectNode result = JSON.createObjectNode();
    StoreCounters counters = new StoreCounters();
    long begunNs = System.nanoTime();
    try {
      List<Outcome> outcomes = table.apply(operations(arguments), counters);
      for (Outcome outcome : outcomes) result.withArray("outcomes").add(told(outcome));
    } catch (TableException failure) {
      result.put("code", failure.code).put("status", failure.status).put("failure", failure.getMessage());
    } catch (InterruptedException | RuntimeException failure) {
      result.put("code", failure.getClass().getSimpleName()).put("failure", String.valueOf(failure.getMessage()));
    }
    result.put("took_s", (System.nanoTime() - begunNs) / 1e9).put("waited_s", counters.waitNs.sum() / 1e9);
    result.put("calls", counters.requests.sum()).put("retries", counters.retries.sum());
    return result.put("sent_bytes", counters.sentBytes.sum()).put("received_bytes", counters.receivedBytes.sum());
  }

  private static ObjectNode told(Outcome outcome) {
    ObjectNode told = JSON.createObjectNode().put("status", outcome.status()).put("code", outcome.code());
    told.put("absent", outcome.absent()).put("refused", outcome.preconditionFailed());
    return told.put("etag", outcome.etag()).set("value", outcome.value());
  }

  private static List<Operation> operations(JsonNode arguments) {
    List<Operation> operations = new ArrayList<>();
    for (JsonNode given : arguments.path("operations")) operations.add(operation(given));
    return operations;
  }

  private static Operation operation(JsonNode given) {
    Key key = new Key(given.path("key").path(0).asText(), given.path("key").path(1).asText());
    return switch (given.path("op").asText()) {
      case "get" -> new Operation.Get(key, fields(given));
      case "put" ->
          new Operation.Put(
              key, value(given), given.path("if_absent").asBoolean(), given.path("if_match").textValue());
      case "update" ->
          new Operation.Update(key, given.get("update"), given.get("default"), given.path("return").asBoolean());
      case "delete" -> new Operation.Delete(key);
      default -> throw new IllegalArgumentException(given.toString());
    };
  }

  private static List<String> fields(JsonNode given) {
    if (!given.has("fields")) return null;
    List<String> fields = new ArrayList<>();
    given.path("fields").forEach(field -> fields.add(field.asText()));
    return fields;
  }

  /** Returns the value; `bytes` requests a binary value of that size. */
  private static JsonNode value(JsonNode given) {
    if (!given.has("bytes")) return given.path("value");
    byte[] bytes = new byte[given.path("bytes").asInt()];
    for (int index = 0; index < bytes.length; index++) bytes[index] = (byte) (index * 31);
    return JSON.createObjectNode().put("data", bytes);
  }
}
