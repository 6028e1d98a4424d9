package tableside.state;

import java.io.IOException;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;

/**
 * One table of the service. Thread-safe, and shared by all stores of this JVM that have equal settings.
 *
 * <p>What fails in a way that may pass is asked again: every operation here is idempotent or conditional, so that one
 * whose fate is unknown may be. Who puts with a condition recognises his own write where it is refused.
 */
final class Table {
  private static final int SHARED_MAX = 32;
  private static final Map<Settings, Table> SHARED =
      new LinkedHashMap<>(SHARED_MAX, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Settings, Table> eldest) {
          return size() > SHARED_MAX; // It goes on for those that have it; its threads end as they are idle.
        }
      };

  private static final Duration LOOK_AGAIN = Duration.ofMinutes(1);
  private static final int HTTP_THREADS = 4;
  private static final int BEGUN_MAX = 16;
  private static final int HELPERS_MAX = 32;

  private final Settings settings;
  private final ExecutorService http = Threads.waiting("http", HTTP_THREADS);
  private final ExecutorService beginning = Threads.waiting("call", BEGUN_MAX);
  private final ExecutorService helping = Threads.refusing("request", HELPERS_MAX);
  private final Service service;
  private volatile Layout known;

  Table(Settings settings) {
    this(settings, LOOK_AGAIN);
  }

  /** A table whose files, of a token and of certificates, are looked at so often. */
  Table(Settings settings, Duration lookAgain) {
    this.settings = settings;
    this.service = new Service(settings, http, lookAgain);
  }

  /** The one table for these settings in this JVM. */
  static Table shared(Settings settings) {
    synchronized (SHARED) {
      return SHARED.computeIfAbsent(settings, Table::new);
    }
  }

  /**
   * Does the operations, no two of them on one key, and returns one outcome for each, in their order.
   *
   * <p>They go in as many requests as it takes, some under way at once; each has `deadline_s` with its retries. An
   * interruption ends the wait at once; what was under way may have been done.
   *
   * @throws TableException if any fails for another reason than that a record is absent, or not as it should be
   */
  List<Outcome> apply(List<Operation> operations, Meter meter) throws TableException, InterruptedException {
    refuseRepeated(operations);
    if (Thread.interrupted()) throw new InterruptedException();
    if (operations.isEmpty()) return List.of();
    long begunNs = System.nanoTime();
    try {
      return applied(List.copyOf(operations), meter);
    } finally {
      meter.waitedNs.add(System.nanoTime() - begunNs);
    }
  }

  /** Begins to apply, on a thread of the table's. To cancel it ends the wait, as an interruption does. */
  CompletableFuture<List<Outcome>> begin(List<Operation> operations, Meter meter) {
    List<Operation> given = List.copyOf(operations);
    Begun begun = new Begun();
    begun.task = beginning.submit(() -> begun.run(this, given, meter));
    return begun;
  }

  /** Ends the threads. Calls under way fail. */
  void close() {
    beginning.shutdownNow();
    helping.shutdownNow();
    http.shutdown();
  }

  @Override
  public String toString() {
    return "table " + settings.table() + " at " + settings.url();
  }

  private List<Outcome> applied(List<Operation> operations, Meter meter) throws TableException, InterruptedException {
    Layout layout = layout(meter);
    try {
      return new Call(settings, layout, service, helping, operations, meter).run();
    } catch (TableException refused) {
      // A table that was not there may be there by now, with keys of its own: the service refused them all.
      boolean wrongKeys = layout == Layout.ASSUMED && Fault.INVALID_OPERATION.equals(refused.code());
      if (!wrongKeys || layout(meter) != Layout.PAIR) throw refused;
    }
    return new Call(settings, Layout.PAIR, service, helping, operations, meter).run();
  }

  /** The layout of the table's keys, which is asked for until there is a table. */
  private Layout layout(Meter meter) throws TableException, InterruptedException {
    if (known != null) return known;
    Budget budget = new Budget(settings.deadlineS());
    while (true) {
      try {
        known = described(service.describe(budget.attempt(settings.timeoutS()), meter));
        return known;
      } catch (Fault fault) {
        if (Outcome.TABLE_NOT_FOUND.equals(fault.code)) return Layout.ASSUMED;
        if (!fault.retriable || !budget.pause(fault, fault.retryAfterS)) {
          throw TableException.of(settings, "a look at its keys", budget, fault);
        }
        meter.retries.increment();
      }
    }
  }

  private Layout described(Answer answer) throws Fault {
    try {
      return Layout.of(Json.read(answer.stream()), settings.table());
    } catch (IOException error) {
      throw Fault.passing(Fault.UNEXPECTED, answer.status(), "an answer that is not the service's own, or not whole");
    }
  }

  private static void refuseRepeated(List<Operation> operations) {
    Set<Key> keys = new HashSet<>();
    for (Operation operation : operations) {
      if (!keys.add(operation.key())) throw new IllegalArgumentException("twice in one call: " + operation.key());
    }
  }

  /** A call on another thread, which ends when the call is cancelled. */
  private static final class Begun extends CompletableFuture<List<Outcome>> {
    private volatile Future<?> task;

    private void run(Table table, List<Operation> operations, Meter meter) {
      try {
        complete(table.apply(operations, meter));
      } catch (Exception | Error error) {
        completeExceptionally(error);
      }
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      boolean cancelled = super.cancel(mayInterrupt);
      Future<?> running = task;
      if (cancelled && running != null) running.cancel(true);
      return cancelled;
    }
  }
}
