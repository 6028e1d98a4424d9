package tableside.state.http;

import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;

/**
 * The time budget of one request including its retries, and the pauses between attempts.
 *
 * <p>Pauses grow exponentially with full jitter ("Exponential Backoff And Jitter", Brooker 2015). They are never
 * shorter than the pause that the service requests.
 */
final class RequestBudget {
  private static final double PAUSE_FIRST_S = 0.1;
  private static final double PAUSE_MAX_S = 10;

  private final long startNs = System.nanoTime();
  private final double deadlineS;
  private int attempts;
  private AttemptException previous;

  RequestBudget(double deadlineS) {
    this.deadlineS = deadlineS;
  }

  /** Starts an attempt and returns its timeout. */
  double startAttempt(double timeoutS) {
    attempts++;
    return Math.max(0.001, Math.min(timeoutS, deadlineS - elapsedS()));
  }

  /** Pauses before the next attempt, for at least `pauseMinS`. Returns false immediately if too little time is left. */
  boolean pause(AttemptException failure, double pauseMinS) throws InterruptedException {
    double ceilingS = Math.min(PAUSE_MAX_S, PAUSE_FIRST_S * Math.pow(2, Math.min(attempts - 1, 30)));
    double pauseS = Math.max(ThreadLocalRandom.current().nextDouble() * ceilingS, pauseMinS);
    if (elapsedS() + pauseS >= deadlineS) return false;
    previous = failure;
    Thread.sleep((long) Math.ceil(pauseS * 1000));
    return true;
  }

  /** Describes the last failure, and the previous one if it differs. */
  String describe(AttemptException last) {
    boolean unchanged = previous == null || previous.code.equals(last.code) && previous.detail.equals(last.detail);
    return last + (unchanged ? "" : "; previous attempt: " + previous);
  }

  private double elapsedS() {
    return (System.nanoTime() - startNs) / 1e9;
  }

  @Override
  public String toString() {
    String count = attempts == 1 ? "1 attempt" : attempts + " attempts";
    return String.format(Locale.ROOT, "%s in %.1f s of at most %s s", count, elapsedS(), Double.toString(deadlineS));
  }
}
