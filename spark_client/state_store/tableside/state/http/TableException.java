package tableside.state.http;

import java.io.IOException;

/** The service could not be used. The message contains the operation, the table, the attempts and the last response. */
final class TableException extends IOException {
  private static final long serialVersionUID = 1;

  /** The service's error code, or one of {@link AttemptException}. */
  final String code;
  /** The HTTP status of the response, or 0 if there was none. */
  final int status;

  private TableException(String message, AttemptException failure) {
    super(message);
    this.code = failure.code;
    this.status = failure.status;
  }

  static TableException of(Settings settings, String action, RequestBudget budget, AttemptException failure) {
    String table = "table " + settings.table() + " at " + settings.url();
    String message = table + ": " + action + " failed after " + budget + ": " + budget.describe(failure);
    return new TableException(message, failure);
  }
}
