package tableside.state.http;

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
 * A table of the service. Thread-safe, and shared by all stores of this JVM with equal settings.
 *
 * <p>Retriable failures are retried. This is safe after an unknown outcome, because every operation here is idempotent
 * or conditional. A caller whose conditional put is refused must check whether the record is its own earlier write.
 */
public final class Table {
  private static final int SHARED_TABLES_MAX = 32;
  private static final Map<Settings, Table> SHARED =
      new LinkedHashMap<>(SHARED_TABLES_MAX, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Settings, Table> eldest) {
          return size() > SHARED_TABLES_MAX; // Stores that use it keep it; its threads end when idle.
        }
      };

  private static final Duration RELOAD_INTERVAL = Duration.ofMinutes(1);
  private static final int HTTP_THREADS = 4;
  private static final int ASYNC_CALLS_MAX = 16;
  private static final int HELPER_THREADS_MAX = 32;

  private final Settings settings;
  private final ExecutorService httpThreads = ThreadPools.queueing("http", HTTP_THREADS);
  private final ExecutorService asyncCalls = ThreadPools.queueing("call", ASYNC_CALLS_MAX);
  private final ExecutorService helpers = ThreadPools.rejecting("request", HELPER_THREADS_MAX);
  private final ServiceClient service;
  private volatile KeyLayout layout;

  Table(Settings settings) {
    this(settings, RELOAD_INTERVAL);
  }

  /** Creates a table that rereads token and certificate files at this interval. */
  Table(Settings settings, Duration reloadInterval) {
    this.settings = settings;
    this.service = new ServiceClient(settings, httpThreads, reloadInterval);
  }

  /** The shared table for these settings in this JVM. */
  public static Table shared(Settings settings) {
    synchronized (SHARED) {
      return SHARED.computeIfAbsent(settings, Table::new);
    }
  }

  /**
   * Applies operations, with no two on the same key, and returns one outcome for each, in order.
   *
   * <p>The operations are sent in as many requests as needed, several of them concurrently. Each request has
   * `deadline_s` including its retries. An interruption ends the wait at once; requests already sent may have been
   * applied.
   *
   * @throws TableException if any operation fails, except with an absent record or a failed precondition
   */
  public List<Outcome> apply(List<Operation> operations, StoreCounters counters)
      throws TableException, InterruptedException {
    requireDistinctKeys(operations);
    if (Thread.interrupted()) throw new InterruptedException();
    if (operations.isEmpty()) return List.of();
    long startNs = System.nanoTime();
    try {
      return applyOnce(List.copyOf(operations), counters);
    } finally {
      counters.waitNs.add(System.nanoTime() - startNs);
    }
  }

  /** Applies operations on a thread of this table. Cancelling the future ends the wait, as an interruption does. */
  public CompletableFuture<List<Outcome>> applyAsync(List<Operation> operations, StoreCounters counters) {
    List<Operation> given = List.copyOf(operations);
    AsyncCall call = new AsyncCall();
    call.task = asyncCalls.submit(() -> call.run(this, given, counters));
    return call;
  }

  /** Ends the threads. Calls in progress fail. */
  void close() {
    asyncCalls.shutdownNow();
    helpers.shutdownNow();
    httpThreads.shutdown();
  }

  @Override
  public String toString() {
    return "table " + settings.table() + " at " + settings.url();
  }

  private List<Outcome> applyOnce(List<Operation> operations, StoreCounters counters)
      throws TableException, InterruptedException {
    KeyLayout layout = layout(counters);
    try {
      return new ApplyCall(settings, layout, service, helpers, operations, counters).run();
    } catch (TableException refused) {
      // A table that was missing may have been created since, with another key: the service rejected all operations.
      boolean wrongKeys = layout == KeyLayout.ASSUMED && AttemptException.INVALID_OPERATION.equals(refused.code);
      if (!wrongKeys || layout(counters) != KeyLayout.PAIR) throw refused;
    }
    return new ApplyCall(settings, KeyLayout.PAIR, service, helpers, operations, counters).run();
  }

  /** The layout of the table's keys. It is requested until the table exists. */
  private KeyLayout layout(StoreCounters counters) throws TableException, InterruptedException {
    if (layout != null) return layout;
    RequestBudget budget = new RequestBudget(settings.deadlineS());
    while (true) {
      try {
        layout = parseLayout(service.describe(budget.startAttempt(settings.timeoutS()), counters));
        return layout;
      } catch (AttemptException failure) {
        if (Outcome.TABLE_NOT_FOUND.equals(failure.code)) return KeyLayout.ASSUMED;
        if (!failure.retriable || !budget.pause(failure, failure.retryAfterS)) {
          throw TableException.of(settings, "reading its key layout", budget, failure);
        }
        counters.retries.increment();
      }
    }
  }

  private KeyLayout parseLayout(ServiceResponse response) throws AttemptException {
    try {
      return KeyLayout.of(Json.MAPPER.readTree(response.stream()), settings.table());
    } catch (IOException error) {
      throw AttemptException.ofUnreadableResponse(response.status());
    }
  }

  private static void requireDistinctKeys(List<Operation> operations) {
    Set<Key> keys = new HashSet<>();
    for (Operation operation : operations) {
      if (!keys.add(operation.key())) {
        throw new IllegalArgumentException("two operations of one call have the key " + operation.key());
      }
    }
  }

  /** A call on another thread. Cancelling it interrupts that thread. */
  private static final class AsyncCall extends CompletableFuture<List<Outcome>> {
    private volatile Future<?> task;

    private void run(Table table, List<Operation> operations, StoreCounters counters) {
      try {
        complete(table.apply(operations, counters));
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
