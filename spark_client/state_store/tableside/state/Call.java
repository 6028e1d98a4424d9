package tableside.state;

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
 * One call of a table's: cuts operations into requests, and has some of them under way at once.
 *
 * <p>The calling thread sends requests itself, and others help it as long as there is more to be sent than it sends.
 */
final class Call {
  /** How large the answer to one request is wanted at most, where every value that it asks for is a full chunk. */
  private static final int ANSWER_BYTES_WANTED = 16 << 20;

  private final Settings settings;
  private final Layout layout;
  private final ExecutorService pool;
  private final List<Operation> operations;
  private final Settling settling;
  private final List<Future<?>> helping = new ArrayList<>();
  private int begun;
  private Exception failure;

  Call(Settings settings, Layout layout, Service service, ExecutorService pool, List<Operation> given, Meter meter) {
    this.settings = settings;
    this.layout = layout;
    this.pool = pool;
    this.operations = given;
    this.settling = new Settling(settings, layout, service, given, meter, this::hasFailed);
  }

  /** Returns one outcome per operation, in order. */
  List<Outcome> run() throws TableException, InterruptedException {
    try {
      work();
      awaitHelp();
    } catch (TableException | RuntimeException error) {
      fail(error);
    } finally {
      stop();
    }
    raiseFailure();
    return settling.outcomes();
  }

  private void work() throws TableException, InterruptedException {
    for (Part part = next(); part != null; part = next()) {
      settling.settle(part.positions, part.body, new Budget(settings.deadlineS()));
    }
  }

  /** Positions, and the request that they make. */
  private record Part(List<Integer> positions, Body body) {}

  private synchronized Part next() {
    if (failure != null || begun == operations.size()) return null;
    try {
      int from = begun;
      Body body = new Body(layout, settings.requestBytesMax(), wholeGetsMax());
      while (begun < operations.size() && body.add(operations.get(begun))) begun++;
      if (begun < operations.size()) help();
      return new Part(IntStream.range(from, begun).boxed().toList(), body);
    } catch (IOException error) {
      throw new IllegalArgumentException("an operation that cannot be written as JSON", error);
    }
  }

  private int wholeGetsMax() {
    return Math.max(1, ANSWER_BYTES_WANTED / (settings.chunkBytesMax() / 3 * 4));
  }

  /** Lets one more thread send requests; where none is free, those that there are do it all. */
  private void help() {
    if (helping.size() >= settings.inFlightMax() - 1) return;
    try {
      helping.add(pool.submit(this::helpOut));
    } catch (RejectedExecutionException busy) {
      // Later, perhaps: each request that is begun asks again.
    }
  }

  private void helpOut() {
    try {
      work();
    } catch (TableException | InterruptedException | RuntimeException error) {
      fail(error);
    }
  }

  private synchronized void fail(Exception error) {
    if (failure != null) return;
    failure = error;
    stop();
  }

  private synchronized boolean hasFailed() {
    return failure != null;
  }

  private void awaitHelp() throws InterruptedException {
    for (Future<?> help : helpers()) {
      try {
        help.get();
      } catch (CancellationException stopped) {
        return; // By a failure, which is raised.
      } catch (ExecutionException error) {
        throw new IllegalStateException(error.getCause());
      }
    }
  }

  private synchronized void raiseFailure() throws TableException {
    if (failure instanceof TableException error) throw error;
    if (failure instanceof RuntimeException error) throw error;
    if (failure != null) throw new IllegalStateException("the table was closed meanwhile", failure);
  }

  private void stop() {
    for (Future<?> help : helpers()) help.cancel(true);
  }

  private synchronized List<Future<?>> helpers() {
    return List.copyOf(helping);
  }
}
