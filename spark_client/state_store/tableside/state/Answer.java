package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.InputStream;
import java.net.http.HttpHeaders;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;

/** An answer that has come whole: its status, its headers, and its body as it arrived, to be read once. */
record Answer(int status, HttpHeaders headers, List<ByteBuffer> body) {
  /** The body, which is let go of as it is read. */
  InputStream stream() {
    Deque<ByteBuffer> left = new ArrayDeque<>(body);
    body.clear();
    return new InputStream() {
      @Override
      public int read() {
        ByteBuffer next = next();
        return next == null ? -1 : next.get() & 0xff;
      }

      @Override
      public int read(byte[] target, int offset, int length) {
        if (length == 0) return 0;
        ByteBuffer next = next();
        if (next == null) return -1;
        int count = Math.min(length, next.remaining());
        next.get(target, offset, count);
        return count;
      }

      private ByteBuffer next() {
        while (!left.isEmpty() && !left.peek().hasRemaining()) left.poll();
        return left.peek();
      }
    };
  }

  /** What the answer says went wrong: the service's own problem document, or whatever else answered. */
  Fault fault() {
    JsonNode problem = null;
    if (headers.firstValue("content-type").orElse("").contains("json")) {
      try {
        problem = Json.read(stream());
      } catch (IOException error) {
        // A proxy's, or half of one: the status has to serve.
      }
    }
    boolean own = problem != null && problem.path("code").isTextual();
    return own ? Fault.of(status, problem, retryAfterS()) : Fault.foreign(status, retryAfterS());
  }

  /** How long the service asks to be left alone. A date is none: it sends none, and a proxy's clock is not ours. */
  double retryAfterS() {
    try {
      double seconds = Double.parseDouble(headers.firstValue("retry-after").orElse("0").strip());
      return Double.isFinite(seconds) ? Math.max(0, seconds) : 0;
    } catch (NumberFormatException error) {
      return 0;
    }
  }
}
