package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;

/** Why one attempt failed, for a request as a whole or for one operation of it; never leaves the package's client. */
final class Fault extends Exception {
  static final String UNREACHABLE = "service_unreachable";
  static final String TLS_REFUSED = "tls_refused";
  static final String TOO_LARGE = "too_large";
  static final String UNEXPECTED = "unexpected_answer";
  static final String UNAUTHENTICATED = "unauthenticated";
  static final String INVALID_OPERATION = "invalid_operation";

  final String code;
  /** 0 where no answer came at all. */
  final int status;
  final String detail;
  final boolean retriable;
  final double retryAfterS;

  Fault(String code, int status, String detail, boolean retriable, double retryAfterS) {
    super(detail, null, false, false);
    this.code = code;
    this.status = status;
    this.detail = detail;
    this.retriable = retriable;
    this.retryAfterS = retryAfterS;
  }

  /** A fault that asking again would not mend. */
  static Fault lasting(String code, int status, String detail) {
    return new Fault(code, status, detail, false, 0);
  }

  /** A fault that may pass. */
  static Fault passing(String code, int status, String detail) {
    return new Fault(code, status, detail, true, 0);
  }

  /** What a problem document says, that of an answer or of one result; the header stands in for its pause. */
  static Fault of(int status, JsonNode problem, double retryAfterS) {
    return new Fault(
        problem.path("code").asText(),
        status,
        problem.path("detail").asText(problem.path("title").asText("")),
        problem.path("retriable").asBoolean(false),
        problem.path("retry_after_s").asDouble(retryAfterS));
  }

  /** What an answer stands for that is not the service's own: a proxy's, for the most part. */
  static Fault foreign(int status, double retryAfterS) {
    boolean passes = status == 408 || status == 429 || status >= 500;
    String detail = "an answer with status " + status + " that is not the service's own";
    return new Fault(status == 413 ? TOO_LARGE : UNEXPECTED, status, detail, passes, retryAfterS);
  }

  boolean tooLarge() {
    return TOO_LARGE.equals(code);
  }

  @Override
  public String toString() {
    return code + (status == 0 ? "" : " (" + status + ")") + ": " + detail;
  }
}
