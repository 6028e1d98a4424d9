package tableside.state;

import java.net.URI;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** One attempt at a time: sends a request, with the token, and returns what came. The only class that knows HTTP. */
final class Service {
  /** What the service answers with at most by default, and some more. */
  static final int ANSWER_BYTES_MAX = (64 << 20) + (4 << 20);

  private static final String AGENT = "tableside-state/1";
  private static final double SHARE_OF_SERVICE = 0.95;

  private final Settings settings;
  private final Connections connections;
  private final Bearer bearer;

  /** Files, of the token and of certificates, are looked at so often, and a token's also when it is refused. */
  Service(Settings settings, ExecutorService threads, Duration lookAgain) {
    this.settings = settings;
    this.connections = new Connections(settings, threads, lookAgain);
    this.bearer = new Bearer(settings.tokenFile(), lookAgain);
  }

  /** Describes the table. */
  Answer describe(double withinS, Meter meter) throws Fault, InterruptedException {
    return signed(request("", withinS).GET(), withinS, meter);
  }

  /** Sends a batch, whose operations the service leaves alone when the time is over. */
  Answer batch(Body.Content content, double withinS, Meter meter) throws Fault, InterruptedException {
    HttpRequest.Builder request =
        request("/batch", withinS)
            .header("Content-Type", "application/json")
            .header("Cache-Control", "no-cache")
            .header("Prefer", String.format(Locale.ROOT, "wait=%.3f", withinS * SHARE_OF_SERVICE))
            .POST(content.publisher());
    return signed(request, withinS, meter);
  }

  private HttpRequest.Builder request(String path, double withinS) {
    return HttpRequest.newBuilder(URI.create(settings.url() + "/v1/tables/" + settings.table() + path))
        .timeout(Duration.ofNanos((long) (withinS * 1e9)))
        .header("User-Agent", AGENT)
        .header("Accept", "application/json");
  }

  /** Sends with the token, and once more where it is refused and there is another by now. */
  private Answer signed(HttpRequest.Builder request, double withinS, Meter meter) throws Fault, InterruptedException {
    String token = bearer.current();
    Answer answer = sent(request, token, withinS, meter);
    if (answer.status() == 401 && bearer.differsFrom(token)) {
      answer = sent(request, bearer.current(), withinS, meter);
    }
    if (answer.status() != 200) throw answer.fault();
    return answer;
  }

  private Answer sent(HttpRequest.Builder request, String token, double withinS, Meter meter)
      throws Fault, InterruptedException {
    HttpRequest ready = (token == null ? request : request.setHeader("Authorization", "Bearer " + token)).build();
    meter.calls.increment();
    meter.sentBytes.add(ready.bodyPublisher().map(HttpRequest.BodyPublisher::contentLength).orElse(0L));
    CompletableFuture<HttpResponse<List<ByteBuffer>>> sending =
        connections.client().sendAsync(ready, answer -> new Bounded(ANSWER_BYTES_MAX, meter));
    try {
      // The request's own timeout ends with the answer's headers; this one bounds its body too.
      HttpResponse<List<ByteBuffer>> response = sending.get((long) (withinS * 1e9), TimeUnit.NANOSECONDS);
      return new Answer(response.statusCode(), response.headers(), response.body());
    } catch (TimeoutException error) {
      throw slow(withinS);
    } catch (ExecutionException error) {
      throw fault(error.getCause(), withinS);
    } finally {
      sending.cancel(true);
    }
  }

  private Fault fault(Throwable error, double withinS) {
    if (error instanceof Bounded.TooLargeException) return Fault.lasting(Fault.TOO_LARGE, 0, error.getMessage());
    boolean slow = error instanceof HttpTimeoutException && !(error instanceof HttpConnectTimeoutException);
    return slow ? slow(withinS) : connections.fault(error);
  }

  private static Fault slow(double withinS) {
    return Fault.passing(Fault.UNREACHABLE, 0, String.format(Locale.ROOT, "no answer within %.3f s", withinS));
  }
}
