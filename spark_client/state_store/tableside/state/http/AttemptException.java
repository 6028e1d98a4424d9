package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;

/** The reason why one attempt failed, for a whole request or for one of its operations. Internal to the HTTP client. */
final class AttemptException extends Exception {
  static final String UNREACHABLE = "service_unreachable";
  static final String TLS_REFUSED = "tls_refused";
  static final String TOO_LARGE = "too_large";
  static final String UNEXPECTED = "unexpected_answer";
  static final String UNAUTHENTICATED = "unauthenticated";
  static final String INVALID_OPERATION = "invalid_operation";

  final String code;
  /** The HTTP status, or 0 if no response arrived. */
  final int status;
  final String detail;
  final boolean retriable;
  final double retryAfterS;

  AttemptException(String code, int status, String detail, boolean retriable, double retryAfterS) {
    super(detail, null, false, false);
    this.code = code;
    this.status = status;
    this.detail = detail;
    this.retriable = retriable;
    this.retryAfterS = retryAfterS;
  }

  /** Creates a failure that a retry cannot fix. */
  static AttemptException permanent(String code, int status, String detail) {
    return new AttemptException(code, status, detail, false, 0);
  }

  /** Creates a failure that a retry may fix. */
  static AttemptException retriable(String code, int status, String detail) {
    return new AttemptException(code, status, detail, true, 0);
  }

  /** Reads the problem document of a response or of one result. `retryAfterS` is used if the document has no pause. */
  static AttemptException of(int status, JsonNode problem, double retryAfterS) {
    return new AttemptException(
        problem.path("code").asText(),
        status,
        problem.path("detail").asText(problem.path("title").asText("")),
        problem.path("retriable").asBoolean(false),
        problem.path("retry_after_s").asDouble(retryAfterS));
  }

  /** Describes a response that did not come from the service, usually from a proxy. */
  static AttemptException ofUnexpectedResponse(int status, double retryAfterS) {
    boolean retriable = status == 408 || status == 429 || status >= 500;
    String detail = "a response with status " + status + " that is not from the service";
    return new AttemptException(status == 413 ? TOO_LARGE : UNEXPECTED, status, detail, retriable, retryAfterS);
  }

  /** Describes a response whose body is not a complete document of the service. */
  static AttemptException ofUnreadableResponse(int status) {
    return retriable(UNEXPECTED, status, "the response is not from the service, or is incomplete");
  }

  boolean tooLarge() {
    return TOO_LARGE.equals(code);
  }

  @Override
  public String toString() {
    return code + (status == 0 ? "" : " (" + status + ")") + ": " + detail;
  }
}
