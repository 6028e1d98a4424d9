package tableside.state.log;

import java.io.IOException;

/** A commit was too late: a later attempt has committed the same version. */
class Superseded extends IOException {
  Superseded(String message) {
    super(message);
  }
}
