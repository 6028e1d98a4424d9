package tableside.state;

import java.io.IOException;

/** The service could not be used. The message says what was asked, of what, how often and how long, and the answer. */
final class TableException extends IOException {
  private static final long serialVersionUID = 1;

  private final String code;
  private final int status;

  private TableException(String message, Fault fault) {
    super(message);
    this.code = fault.code;
    this.status = fault.status;
  }

  static TableException of(Settings settings, String asked, Budget budget, Fault fault) {
    String table = "table " + settings.table() + " at " + settings.url();
    return new TableException(table + ": " + asked + " failed after " + budget + ": " + budget.story(fault), fault);
  }

  /** The service's code, such as `store_unavailable`; or `service_unreachable`, `tls_refused`, `unexpected_answer`. */
  String code() {
    return code;
  }

  /** The status of the answer, or 0 where there was none. */
  int status() {
    return status;
  }
}
