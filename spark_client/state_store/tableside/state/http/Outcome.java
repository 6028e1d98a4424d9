package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;

/** The outcome of one operation after retries, as in the response to a single request. Unknown members are null. */
public record Outcome(int status, JsonNode value, String etag, String code, String detail) {
  static final String RECORD_NOT_FOUND = "record_not_found";
  static final String TABLE_NOT_FOUND = "table_not_found";
  static final String PRECONDITION_FAILED = "precondition_failed";

  /** Whether the record is absent, or the table that the service will create at its first write. */
  public boolean absent() {
    return RECORD_NOT_FOUND.equals(code) || TABLE_NOT_FOUND.equals(code);
  }

  /** Whether the table does not exist. */
  public boolean tableAbsent() {
    return TABLE_NOT_FOUND.equals(code);
  }

  /** Whether a conditional put failed: the record exists, or has a different etag. */
  public boolean preconditionFailed() {
    return PRECONDITION_FAILED.equals(code);
  }
}
