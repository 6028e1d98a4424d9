package tableside.state;

import java.io.IOException;

/** A version cannot be read completely. The message names the missing or damaged record and contains no state. */
class StateUnreadable extends IOException {
  StateUnreadable(String message) {
    super(message);
  }

  StateUnreadable(String message, Throwable cause) {
    super(message, cause);
  }
}
