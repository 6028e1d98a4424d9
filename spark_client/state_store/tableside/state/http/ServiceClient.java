package tableside.state.http;

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

/** Sends one attempt of a request, with the token, and returns the response. Retries are up to the caller. */
final class ServiceClient {
  /** The service's default limit for responses, and a margin. */
  static final int RESPONSE_BYTES_MAX = (64 << 20) + (4 << 20);

  private static final String AGENT = "tableside-state/1";
  private static final double SERVICE_DEADLINE_SHARE = 0.95;

  private final Settings settings;
  private final ReloadingHttpClient http;
  private final TokenSource tokens;

  /** Creates a client that rereads the token and certificate files at this interval, and the token also after a 401. */
  ServiceClient(Settings settings, ExecutorService threads, Duration reloadInterval) {
    this.settings = settings;
    this.http = new ReloadingHttpClient(settings, threads, reloadInterval);
    this.tokens = new TokenSource(settings.tokenFile(), reloadInterval);
  }

  ServiceResponse describe(double timeoutS, StoreCounters counters) throws AttemptException, InterruptedException {
    return sendWithToken(request("", timeoutS).GET(), timeoutS, counters);
  }

  /** Sends a batch. The service stops processing operations when the timeout has passed. */
  ServiceResponse batch(BatchBody.Content content, double timeoutS, StoreCounters counters)
      throws AttemptException, InterruptedException {
    HttpRequest.Builder request =
        request("/batch", timeoutS)
            .header("Content-Type", "application/json")
            .header("Cache-Control", "no-cache")
            .header("Prefer", String.format(Locale.ROOT, "wait=%.3f", timeoutS * SERVICE_DEADLINE_SHARE))
            .POST(content.publisher());
    return sendWithToken(request, timeoutS, counters);
  }

  private HttpRequest.Builder request(String path, double timeoutS) {
    return HttpRequest.newBuilder(URI.create(settings.url() + "/v1/tables/" + settings.table() + path))
        .timeout(Duration.ofNanos((long) (timeoutS * 1e9)))
        .header("User-Agent", AGENT)
        .header("Accept", "application/json");
  }

  /** Sends a request with the token, and once more if the service rejects the token and it has changed by then. */
  private ServiceResponse sendWithToken(HttpRequest.Builder request, double timeoutS, StoreCounters counters)
      throws AttemptException, InterruptedException {
    String token = tokens.current();
    ServiceResponse response = send(request, token, timeoutS, counters);
    if (response.status() == 401 && tokens.hasChangedFrom(token)) {
      response = send(request, tokens.current(), timeoutS, counters);
    }
    if (response.status() != 200) throw response.failure();
    return response;
  }

  private ServiceResponse send(HttpRequest.Builder request, String token, double timeoutS, StoreCounters counters)
      throws AttemptException, InterruptedException {
    HttpRequest built = (token == null ? request : request.setHeader("Authorization", "Bearer " + token)).build();
    counters.requests.increment();
    counters.sentBytes.add(built.bodyPublisher().map(HttpRequest.BodyPublisher::contentLength).orElse(0L));
    CompletableFuture<HttpResponse<List<ByteBuffer>>> pending =
        http.client().sendAsync(built, head -> new BoundedBodySubscriber(RESPONSE_BYTES_MAX, counters));
    try {
      // The request's own timeout covers the response's headers only; this one covers the body too.
      HttpResponse<List<ByteBuffer>> response = pending.get((long) (timeoutS * 1e9), TimeUnit.NANOSECONDS);
      return new ServiceResponse(response.statusCode(), response.headers(), response.body());
    } catch (TimeoutException error) {
      throw timedOut(timeoutS);
    } catch (ExecutionException error) {
      throw failure(error.getCause(), timeoutS);
    } finally {
      pending.cancel(true);
    }
  }

  private AttemptException failure(Throwable error, double timeoutS) {
    if (error instanceof BoundedBodySubscriber.TooLargeException) {
      return AttemptException.permanent(AttemptException.TOO_LARGE, 0, error.getMessage());
    }
    boolean timedOut = error instanceof HttpTimeoutException && !(error instanceof HttpConnectTimeoutException);
    return timedOut ? timedOut(timeoutS) : http.failure(error);
  }

  private static AttemptException timedOut(double timeoutS) {
    String detail = String.format(Locale.ROOT, "no response within %.3f s", timeoutS);
    return AttemptException.retriable(AttemptException.UNREACHABLE, 0, detail);
  }
}
