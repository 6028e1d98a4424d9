package tableside.state;

import java.util.Objects;
import org.apache.spark.SparkThrowable;

/** Assertions of cases. A case fails by throwing. */
public final class Check {
  /** An action that may fail. */
  public interface Act {
    void run() throws Exception;
  }

  private Check() {}

  public static void equal(Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError("expected " + expected + "\n     but is " + actual);
    }
  }

  public static void that(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("not true: " + what);
    }
  }

  /**
   * Returns the exception that the action throws. Fails the case if the action succeeds or an assertion in it fails.
   */
  public static Throwable fails(Act act) {
    try {
      act.run();
    } catch (AssertionError failed) {
      throw failed;
    } catch (Throwable thrown) {
      return thrown;
    }
    throw new AssertionError("it should have failed");
  }

  /** Like {@link #fails(Act)}, for a Spark error, possibly a cause, whose condition starts with `condition`. */
  public static Throwable fails(String condition, Act act) {
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

  /** Checks that the messages of an exception and its causes contain these words. */
  public static void says(Throwable thrown, String words) {
    StringBuilder all = new StringBuilder();
    for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
      all.append(cause).append('\n');
    }
    if (all.indexOf(words) < 0) {
      throw new AssertionError("expected the words " + words, thrown);
    }
  }
}
