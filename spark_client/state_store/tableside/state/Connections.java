package tableside.state;

import java.net.ConnectException;
import java.net.http.HttpClient;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutorService;
import javax.net.ssl.SSLContext;

/** The HTTP client of one address: made at first use, and anew once files of certificates have been renewed. */
final class Connections {
  private static final double CONNECT_MAX_S = 5;

  private final Tls tls;
  private final double timeoutS;
  private final ExecutorService threads;
  private final long lookAgainNs;
  private HttpClient client;
  private List<String> seen;
  private long lookedNs;

  Connections(Settings settings, ExecutorService threads, Duration lookAgain) {
    this.tls = Tls.of(settings, System.getenv());
    this.timeoutS = settings.timeoutS();
    this.threads = threads;
    this.lookAgainNs = lookAgain.toNanos();
  }

  /** The client to use now. While new files cannot be used, it is the one made from those read before. */
  synchronized HttpClient client() throws Fault {
    if (client == null) {
      List<String> states = tls == null ? List.of() : tls.states();
      client = made();
      seen = states;
      lookedNs = System.nanoTime();
    } else if (tls != null && System.nanoTime() - lookedNs >= lookAgainNs) {
      lookedNs = System.nanoTime();
      renew();
    }
    return client;
  }

  /** The fault that an error of the HTTP client's is. */
  Fault fault(Throwable error) {
    String refusal = tls == null ? null : tls.refusal(error);
    if (refusal != null) return Fault.lasting(Fault.TLS_REFUSED, 0, refusal);
    boolean cutOff = tls != null && !(error instanceof ConnectException);
    String doubt = cutOff ? " (" + tls.doubt() + ")" : "";
    return Fault.passing(Fault.UNREACHABLE, 0, error.getClass().getSimpleName() + ": " + said(error) + doubt);
  }

  private static String said(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof UnresolvedAddressException) return "the host has no address";
      if (cause.getMessage() != null) return cause.getMessage();
    }
    return error instanceof ConnectException ? "no connection" : "the connection was cut off";
  }

  private void renew() {
    List<String> states = tls.states();
    if (states.equals(seen)) return;
    try {
      client = made();
      seen = states;
    } catch (Fault unusable) {
      // Half renewed: the certificate is there and its key not yet.
    }
  }

  private HttpClient made() throws Fault {
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
