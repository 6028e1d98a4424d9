package tableside.state.http;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.stream.IntStream;

/**
 * One call of {@link Table#apply}: splits the operations into requests and sends several of them concurrently.
 *
 * <p>The calling thread sends requests itself. Helper threads join it as long as further requests are waiting.
 */
final class ApplyCall {
  /** The target size of one response, assuming that every value it returns is a full chunk. */
  private static final int RESPONSE_BYTES_TARGET = 16 << 20;

  private final Settings settings;
  private final KeyLayout layout;
  private final ExecutorService pool;
  private final List<Operation> operations;
  private final BatchRetrier retrier;
  private final List<Future<?>> helpers = new ArrayList<>();
  private int started;
  private Exception failure;

  ApplyCall(
      Settings settings, KeyLayout layout, ServiceClient service, ExecutorService pool, List<Operation> operations,
      StoreCounters counters) {
    this.settings = settings;
    this.layout = layout;
    this.pool = pool;
    this.operations = operations;
    this.retrier = new BatchRetrier(settings, layout, service, operations, counters, this::hasFailed);
  }

  /** Returns one outcome per operation, in order. */
  List<Outcome> run() throws TableException, InterruptedException {
    try {
      sendRequests();
      awaitHelpers();
    } catch (TableException | RuntimeException error) {
      fail(error);
    } finally {
      cancelHelpers();
    }
    throwFailure();
    return retrier.outcomes();
  }

  private void sendRequests() throws TableException, InterruptedException {
    for (RequestPart part = next(); part != null; part = next()) {
      retrier.resolve(part.positions, part.body, new RequestBudget(settings.deadlineS()));
    }
  }

  /** The positions of operations that form one request, and its body. */
  private record RequestPart(List<Integer> positions, BatchBody body) {}

  private synchronized RequestPart next() {
    if (failure != null || started == operations.size()) return null;
    try {
      int from = started;
      BatchBody body = new BatchBody(layout, settings.requestBytesMax(), fullGetsMax());
      while (started < operations.size() && body.add(operations.get(started))) started++;
      if (started < operations.size()) startHelper();
      return new RequestPart(IntStream.range(from, started).boxed().toList(), body);
    } catch (IOException error) {
      throw new IllegalArgumentException("an operation cannot be written as JSON", error);
    }
  }

  private int fullGetsMax() {
    return Math.max(1, RESPONSE_BYTES_TARGET / (settings.chunkBytesMax() / 3 * 4));
  }

  /** Starts one more thread that sends requests. If no thread is free, the threads already running send everything. */
  private void startHelper() {
    if (helpers.size() >= settings.inFlightMax() - 1) return;
    try {
      helpers.add(pool.submit(this::runHelper));
    } catch (RejectedExecutionException busy) {
      // Each request that starts tries again to get a helper.
    }
  }

  private void runHelper() {
    try {
      sendRequests();
    } catch (TableException | InterruptedException | RuntimeException error) {
      fail(error);
    }
  }

  private synchronized void fail(Exception error) {
    if (failure != null) return;
    failure = error;
    cancelHelpers();
  }

  private synchronized boolean hasFailed() {
    return failure != null;
  }

  private void awaitHelpers() throws InterruptedException {
    for (Future<?> helper : helpers()) {
      try {
        helper.get();
      } catch (CancellationException stopped) {
        return; // A failure cancelled the helpers; `throwFailure` reports it.
      } catch (ExecutionException error) {
        throw new IllegalStateException(error.getCause());
      }
    }
  }

  private synchronized void throwFailure() throws TableException {
    if (failure instanceof TableException error) throw error;
    if (failure instanceof RuntimeException error) throw error;
    if (failure != null) throw new IllegalStateException("the table was closed during the call", failure);
  }

  private void cancelHelpers() {
    for (Future<?> helper : helpers()) helper.cancel(true);
  }

  private synchronized List<Future<?>> helpers() {
    return List.copyOf(helpers);
  }
}
