package tableside.state;

import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;

/**
 * The time that one request has with its retries, and the pauses between them.
 *
 * <p>Pauses grow exponentially with full jitter ("Exponential Backoff And Jitter", Brooker 2015), and are never shorter
 * than what the service asked for.
 */
final class Budget {
  private static final double FIRST_S = 0.1;
  private static final double LONGEST_S = 10;

  private final long begunNs = System.nanoTime();
  private final double deadlineS;
  private int attempts;
  private Fault earlier;

  Budget(double deadlineS) {
    this.deadlineS = deadlineS;
  }

  /** Begins an attempt; how long it may last. */
  double attempt(double timeoutS) {
    attempts++;
    return Math.max(0.001, Math.min(timeoutS, deadlineS - spentS()));
  }

  /** Pauses after a fault, at least so long, before the next attempt; false, at once, where there is no time for it. */
  boolean pause(Fault fault, double leastS) throws InterruptedException {
    double ceilingS = Math.min(LONGEST_S, FIRST_S * Math.pow(2, Math.min(attempts - 1, 30)));
    double pauseS = Math.max(ThreadLocalRandom.current().nextDouble() * ceilingS, leastS);
    if (spentS() + pauseS >= deadlineS) return false;
    earlier = fault;
    Thread.sleep((long) Math.ceil(pauseS * 1000));
    return true;
  }

  /** What came of the last attempt, and of the one before it where that is another story. */
  String story(Fault last) {
    boolean same = earlier == null || earlier.code.equals(last.code) && earlier.detail.equals(last.detail);
    return last + (same ? "" : "; and before that: " + earlier);
  }

  private double spentS() {
    return (System.nanoTime() - begunNs) / 1e9;
  }

  @Override
  public String toString() {
    String times = attempts == 1 ? "1 attempt" : attempts + " attempts";
    return String.format(Locale.ROOT, "%s in %.1f s of at most %s s", times, spentS(), Double.toString(deadlineS));
  }
}
