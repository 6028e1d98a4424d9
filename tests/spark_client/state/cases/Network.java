package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;

/** A proxy between a provider and the service: records requests, and drops, delays or answers them. */
final class Network implements AutoCloseable {
  /** A request with its operations. */
  record Request(String path, JsonNode body) {
    /** Whether it has an operation of this kind on an item with this prefix. */
    boolean has(String kind, String item) {
      return items(kind).stream().anyMatch(each -> each.startsWith(item));
    }

    List<String> items(String kind) {
      List<String> items = new ArrayList<>();
      for (JsonNode operation : body.path("operations")) {
        if (operation.path("op").asText().equals(kind)) {
          items.add(operation.path("key").path(1).asText());
        }
      }
      return items;
    }
  }

  /** A response; null instead of a response closes the connection. */
  record Response(int status, String type, byte[] body) {}

  /** Forwards the request to the service. */
  interface Way {
    Response pass() throws IOException, InterruptedException;
  }

  /** Decides how a request is answered. */
  interface Fault {
    Response meet(Request request, Way way) throws Exception;
  }

  static final Fault NONE = (request, way) -> way.pass();
  /** The service applies the request, and the response is lost. */
  static final Fault RESPONSE_LOST =
      (request, way) -> {
        way.pass();
        return null;
      };
  static final Fault REQUEST_LOST = (request, way) -> null;
  /** The request is not applied and not retriable. */
  static final Fault REFUSED = (request, way) -> problem(403, "forbidden", false, false);

  private static final ObjectMapper JSON = new ObjectMapper();

  static {
    System.setProperty("sun.net.httpserver.nodelay", "true");
  }

  private final String service;
  private final HttpServer server;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final List<Request> seen = new CopyOnWriteArrayList<>();
  private volatile Fault fault = NONE;

  private Network(String service) throws IOException {
    this.service = service;
    this.server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(threads);
    server.createContext("/", this::handle);
    server.start();
  }

  /** Starts a proxy for a query's service, and shortens the query's timeouts so that it retries soon. */
  static Network before(Query query) throws IOException {
    Network network = new Network(query.settings.get("url"));
    query.setting("url", "http://127.0.0.1:" + network.server.getAddress().getPort());
    query.setting("timeout_s", 2).setting("deadline_s", 20);
    return network;
  }

  void now(Fault fault) {
    this.fault = fault;
  }

  /** Applies a fault to the first `times` requests that match. Returns the number that is left. */
  AtomicInteger now(int times, Predicate<Request> meant, Fault fault) {
    AtomicInteger left = new AtomicInteger(times);
    now((request, way) ->
        meant.test(request) && left.getAndUpdate(count -> Math.max(0, count - 1)) > 0
            ? fault.meet(request, way)
            : way.pass());
    return left;
  }

  void forget() {
    seen.clear();
  }

  /** Returns the items of operations of this kind, in requests since the last `forget`. */
  List<String> items(String kind, String prefix) {
    List<String> items = new ArrayList<>();
    for (Request request : seen) {
      request.items(kind).stream().filter(item -> item.startsWith(prefix)).forEach(items::add);
    }
    return items;
  }

  /** A problem response of the service for a whole request. */
  static Response problem(int status, String code, boolean applied) {
    return problem(status, code, applied, true);
  }

  private static Response problem(int status, String code, boolean applied, boolean retriable) {
    String body =
        String.format(
            "{\"type\": \"about:blank\", \"title\": \"%s\", \"status\": %d, \"detail\": \"made up\", \"code\": \"%s\","
                + " \"retriable\": %b, \"applied\": \"%s\", \"retry_after_s\": 0.05}",
            code, status, code, retriable, applied ? "unknown" : "no");
    return new Response(status, "application/problem+json", body.getBytes());
  }

  @Override
  public void close() {
    server.stop(0);
    threads.shutdownNow();
  }

  private void handle(HttpExchange exchange) throws IOException {
    try (exchange) {
      byte[] body = exchange.getRequestBody().readAllBytes();
      Request request = new Request(exchange.getRequestURI().toString(), JSON.readTree(body));
      seen.add(request);
      Response response = fault.meet(request, () -> pass(exchange, body));
      if (response != null) {
        exchange.getResponseHeaders().set("Content-Type", response.type());
        exchange.sendResponseHeaders(response.status(), response.body().length == 0 ? -1 : response.body().length);
        exchange.getResponseBody().write(response.body());
      }
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
    } catch (IOException broken) {
      throw broken;
    } catch (Exception error) {
      throw new IOException(error);
    }
  }

  private Response pass(HttpExchange exchange, byte[] body) throws IOException, InterruptedException {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(service + exchange.getRequestURI()));
    request.method(exchange.getRequestMethod(), HttpRequest.BodyPublishers.ofByteArray(body));
    exchange.getRequestHeaders().forEach(
        (name, values) -> {
          if (name.equalsIgnoreCase("Content-Type") || name.equalsIgnoreCase("Authorization")) {
            request.header(name, values.get(0));
          }
        });
    HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    return new Response(
        response.statusCode(), response.headers().firstValue("Content-Type").orElse("application/json"), response.body());
  }
}
