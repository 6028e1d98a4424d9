package tableside.state;

import java.util.Objects;
import org.apache.spark.SparkThrowable;

/** What a case says of what it has seen; a case fails by throwing. */
final class Check {
  /** Something that may fail. */
  interface Act {
    void run() throws Exception;
  }

  private Check() {}

  static void equal(Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError("expected " + expected + "\n     but is " + actual);
    }
  }

  static void that(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("it does not hold that " + what);
    }
  }

  /** Returns what the act fails with; an act that succeeds, or fails as a check, fails the case. */
  static Throwable fails(Act act) {
    try {
      act.run();
    } catch (AssertionError failed) {
      throw failed;
    } catch (Throwable thrown) {
      return thrown;
    }
    throw new AssertionError("it should have failed");
  }

  /** As {@link #fails(Act)}, with an error of Spark's whose condition begins so, perhaps below others. */
  static Throwable fails(String condition, Act act) {
    Throwable thrown = fails(act);
    for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
      if (cause instanceof SparkThrowable known
          && known.getCondition() != null
          && known.getCondition().startsWith(condition)) {
        return thrown;
      }
    }
    throw new AssertionError("expected the condition " + condition, thrown);
  }

  /** Checks that the words of an error, causes included, contain this. */
  static void says(Throwable thrown, String words) {
    StringBuilder all = new StringBuilder();
    for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
      all.append(cause).append('\n');
    }
    if (all.indexOf(words) < 0) {
      throw new AssertionError("expected the words " + words, thrown);
    }
  }
}
