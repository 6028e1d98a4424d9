package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;

/** What became of one operation, after retries: as the service answered a single request. What is not known is null. */
record Outcome(int status, JsonNode value, String etag, String code, String detail) {
  static final String RECORD_NOT_FOUND = "record_not_found";
  static final String TABLE_NOT_FOUND = "table_not_found";
  static final String PRECONDITION_FAILED = "precondition_failed";

  boolean ok() {
    return status < 300;
  }

  /** Whether there is no such record; nor, where it is made at the first write, a table as yet. */
  boolean absent() {
    return RECORD_NOT_FOUND.equals(code) || TABLE_NOT_FOUND.equals(code);
  }

  /** Whether the record was not as the operation would have it: there, or with another etag. */
  boolean refused() {
    return PRECONDITION_FAILED.equals(code);
  }
}
