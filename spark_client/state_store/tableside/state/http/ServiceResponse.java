package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.util.ByteBufferBackedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.net.http.HttpHeaders;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Enumeration;
import java.util.List;

/** A complete response: status, headers, and the body, which can be read once. */
record ServiceResponse(int status, HttpHeaders headers, List<ByteBuffer> body) {
  /** Returns the body. Its buffers are released as they are read. */
  InputStream stream() {
    Deque<ByteBuffer> remaining = new ArrayDeque<>(body);
    body.clear();
    return new SequenceInputStream(
        new Enumeration<>() {
          @Override
          public boolean hasMoreElements() {
            return !remaining.isEmpty();
          }

          @Override
          public InputStream nextElement() {
            return new ByteBufferBackedInputStream(remaining.poll());
          }
        });
  }

  /** The failure that the response reports: the service's problem document, or a description of any other response. */
  AttemptException failure() {
    JsonNode problem = null;
    if (headers.firstValue("content-type").orElse("").contains("json")) {
      try {
        problem = Json.MAPPER.readTree(stream());
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
