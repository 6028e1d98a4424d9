package tableside.state;

import java.io.IOException;

/** A version that cannot be read whole. Says what is missing or damaged, and where; nothing of the state. */
class StateUnreadable extends IOException {
  StateUnreadable(String message) {
    super(message);
  }

  StateUnreadable(String message, Throwable cause) {
    super(message, cause);
  }
}
