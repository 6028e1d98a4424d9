package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.InputStream;
import java.net.http.HttpHeaders;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;

/** A complete response: status, headers, and the body, which can be read once. */
record ServiceResponse(int status, HttpHeaders headers, List<ByteBuffer> body) {
  /** Returns the body. Its buffers are released as they are read. */
  InputStream stream() {
    Deque<ByteBuffer> remaining = new ArrayDeque<>(body);
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
        while (!remaining.isEmpty() && !remaining.peek().hasRemaining()) remaining.poll();
        return remaining.peek();
      }
    };
  }

  /** The failure that the response reports: the service's problem document, or a description of any other response. */
  AttemptException failure() {
    JsonNode problem = null;
    if (headers.firstValue("content-type").orElse("").contains("json")) {
      try {
        problem = Json.read(stream());
      } catch (IOException error) {
        // From a proxy, or incomplete: use the status.
      }
    }
    boolean fromService = problem != null && problem.path("code").isTextual();
    return fromService
        ? AttemptException.of(status, problem, retryAfterS())
        : AttemptException.ofUnexpectedResponse(status, retryAfterS());
  }

  /** The pause that the service requests. Dates are ignored: the service sends none, and a proxy's clock may differ. */
  double retryAfterS() {
    try {
      double seconds = Double.parseDouble(headers.firstValue("retry-after").orElse("0").strip());
      return Double.isFinite(seconds) ? Math.max(0, seconds) : 0;
    } catch (NumberFormatException error) {
      return 0;
    }
  }
}
