package tableside.state.log;

import java.io.IOException;

/** A version cannot be read completely. The message names the missing or damaged record and contains no state. */
public class StateUnreadable extends IOException {
  public StateUnreadable(String message) {
    super(message);
  }

  public StateUnreadable(String message, Throwable cause) {
    super(message, cause);
  }

  /** The same failure with more information. */
  public StateUnreadable with(String information) {
    return new StateUnreadable(getMessage() + information, this);
  }
}
