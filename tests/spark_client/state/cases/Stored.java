package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** The records of one place in the table, read from the service directly, to inspect and to damage them. */
final class Stored {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

  private final String table;
  private final String place;

  private Stored(String table, String place) {
    this.table = table;
    this.place = place;
  }

  /** The records of a query's partition, without the network that its provider uses. */
  static Stored of(JsonNode arguments, String place) {
    JsonNode settings = arguments.get("settings");
    return new Stored(settings.get("url").asText() + "/v1/tables/" + settings.get("table").asText(), place);
  }

  /** Returns the items with a prefix, in order. */
  List<String> items(String prefix) {
    List<String> items = new ArrayList<>();
    String cursor = "";
    do {
      JsonNode page = get("/records?limit=1000&partition=" + encoded(place) + cursor);
      for (JsonNode record : page.get("records")) {
        String item = record.get("key").get(1).asText();
        if (item.startsWith(prefix)) {
          items.add(item);
        }
      }
      cursor = page.get("cursor").isNull() ? "" : "&cursor=" + encoded(page.get("cursor").asText());
    } while (!cursor.isEmpty());
    return items;
  }

  /** Returns the only item with a prefix. */
  String item(String prefix) {
    List<String> items = items(prefix);
    Check.that(items.size() == 1, "there is one item " + prefix + " in " + items(""));
    return items.get(0);
  }

  JsonNode value(String item) {
    return operation("get", item, null).get("value");
  }

  void put(String item, JsonNode value) {
    operation("put", item, value);
  }

  void delete(String item) {
    operation("delete", item, null);
  }

  void change(String item, Consumer<ObjectNode> change) {
    ObjectNode value = (ObjectNode) value(item);
    change.accept(value);
    put(item, value);
  }

  private JsonNode operation(String kind, String item, JsonNode value) {
    ObjectNode operation = JSON.createObjectNode().put("op", kind);
    operation.putArray("key").add(place).add(item);
    if (value != null) {
      operation.set("value", value);
    }
    ObjectNode batch = JSON.createObjectNode();
    batch.putArray("operations").add(operation);
    JsonNode result = post("/batch", batch).get("results").get(0);
    Check.that(result.get("status").asInt() < 300, kind + " of " + item + " was done: " + result);
    return result;
  }

  private JsonNode get(String path) {
    return answer(HttpRequest.newBuilder(URI.create(table + path)).GET());
  }

  private JsonNode post(String path, JsonNode body) {
    return answer(
        HttpRequest.newBuilder(URI.create(table + path))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(body.toString())));
  }

  private static JsonNode answer(HttpRequest.Builder request) {
    try {
      HttpResponse<String> answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
      Check.that(answer.statusCode() == 200, "the service answers: " + answer.body());
      return JSON.readTree(answer.body());
    } catch (IOException | InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private static String encoded(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8);
  }
}
