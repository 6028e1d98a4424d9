package tableside.state.http;

import java.net.ConnectException;
import java.net.http.HttpClient;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutorService;
import javax.net.ssl.SSLContext;

/** The HTTP client for one URL. It is created on first use, and again after certificate files have changed. */
final class ReloadingHttpClient {
  private static final double CONNECT_MAX_S = 5;

  private final TlsFiles tls;
  private final double timeoutS;
  private final ExecutorService threads;
  private final long reloadIntervalNs;
  private HttpClient client;
  private List<String> fileStates;
  private long checkedNs;

  ReloadingHttpClient(Settings settings, ExecutorService threads, Duration reloadInterval) {
    this.tls = TlsFiles.of(settings, System.getenv());
    this.timeoutS = settings.timeoutS();
    this.threads = threads;
    this.reloadIntervalNs = reloadInterval.toNanos();
  }

  /** The current client. While changed files cannot be used, this is the client with the previous ones. */
  synchronized HttpClient client() throws AttemptException {
    if (client == null) {
      List<String> currentStates = tls == null ? List.of() : tls.fileStates();
      client = newClient();
      fileStates = currentStates;
      checkedNs = System.nanoTime();
    } else if (tls != null && System.nanoTime() - checkedNs >= reloadIntervalNs) {
      checkedNs = System.nanoTime();
      reload();
    }
    return client;
  }

  /** Converts an error of the HTTP client to a failure of the attempt. */
  AttemptException failure(Throwable error) {
    String rejection = tls == null ? null : tls.rejection(error);
    if (rejection != null) return AttemptException.permanent(AttemptException.TLS_REFUSED, 0, rejection);
    boolean tlsMayHaveRefused = tls != null && !(error instanceof ConnectException);
    String hint = tlsMayHaveRefused ? " (" + tls.ambiguousCloseHint() + ")" : "";
    String detail = error.getClass().getSimpleName() + ": " + message(error) + hint;
    return AttemptException.retriable(AttemptException.UNREACHABLE, 0, detail);
  }

  private static String message(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof UnresolvedAddressException) return "the host has no address";
      if (cause.getMessage() != null) return cause.getMessage();
    }
    return error instanceof ConnectException ? "no connection" : "the connection was closed";
  }

  private void reload() {
    List<String> currentStates = tls.fileStates();
    if (currentStates.equals(fileStates)) return;
    try {
      client = newClient();
      fileStates = currentStates;
    } catch (AttemptException unusable) {
      // The files are being replaced: the certificate is new and its key is not there yet.
    }
  }

  private HttpClient newClient() throws AttemptException {
    SSLContext context = tls == null ? null : tls.context();
    HttpClient.Builder builder =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .followRedirects(HttpClient.Redirect.NEVER)
            .connectTimeout(Duration.ofMillis((long) Math.ceil(1000 * Math.min(timeoutS, CONNECT_MAX_S))))
            .executor(threads);
    return (context == null ? builder : builder.sslContext(context)).build();
  }
}
