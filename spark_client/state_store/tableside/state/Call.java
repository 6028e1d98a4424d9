package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.IntStream;

/**
 * One call of a table's: cuts operations into requests, some of them under way at once, and asks until all are settled.
 *
 * <p>The calling thread sends requests itself, and others help it as long as there is more to be sent than it sends.
 */
final class Call {
  /** How large the answer to one request is wanted at most, where every value that it asks for is a full chunk. */
  private static final int ANSWER_BYTES_WANTED = 16 << 20;

  /** What the caller asked to know, rather than trouble. */
  private static final Set<String> EXPECTED = Set.of(Outcome.RECORD_NOT_FOUND, Outcome.PRECONDITION_FAILED);

  private final Settings settings;
  private final Layout layout;
  private final Service service;
  private final ExecutorService pool;
  private final List<Operation> operations;
  private final Meter meter;
  private final AtomicReferenceArray<Outcome> outcomes;
  private final List<Future<?>> helping = new ArrayList<>();
  private int begun;
  private Exception failure;

  Call(Settings settings, Layout layout, Service service, ExecutorService pool, List<Operation> given, Meter meter) {
    this.settings = settings;
    this.layout = layout;
    this.service = service;
    this.pool = pool;
    this.operations = given;
    this.meter = meter;
    this.outcomes = new AtomicReferenceArray<>(given.size());
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
    return IntStream.range(0, operations.size()).mapToObj(outcomes::get).toList();
  }

  private void work() throws TableException, InterruptedException {
    for (Part part = next(); part != null; part = next()) {
      settle(part.positions, part.body, new Budget(settings.deadlineS()));
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
    if (failure == null) failure = error;
  }

  private synchronized boolean hasFailed() {
    return failure != null;
  }

  private void awaitHelp() throws InterruptedException {
    for (Future<?> help : helpers()) {
      try {
        help.get();
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

  /** Asks for these operations, and again for those that have failed in a way that may pass. */
  private void settle(List<Integer> positions, Body body, Budget budget) throws TableException, InterruptedException {
    List<Integer> asked = positions;
    Body.Content content = body.content();
    while (true) {
      Left left = attempt(asked, content, budget);
      if (left.positions.isEmpty()) return;
      if (left.tooLarge) {
        halve(left.positions, asked, left.fault, budget);
        return;
      }
      if (hasFailed() || !budget.pause(left.fault, left.pauseS)) throw failure(left.positions.get(0), left.fault, budget);
      meter.retries.increment();
      if (left.positions.size() < asked.size()) content = body(left.positions).content();
      asked = left.positions;
    }
  }

  /**
   * What is left of a request: why the first of it is, how long the service asks to be left alone, and whether all of
   * it is merely too large for one answer.
   */
  private record Left(List<Integer> positions, Fault fault, double pauseS, boolean tooLarge) {
    static final Left NOTHING = new Left(List.of(), null, 0, false);

    static Left of(List<Integer> positions, List<Fault> faults) {
      if (positions.isEmpty()) return NOTHING;
      double pauseS = faults.stream().mapToDouble(fault -> fault.retryAfterS).max().orElse(0);
      return new Left(positions, faults.get(0), pauseS, faults.stream().allMatch(Fault::tooLarge));
    }
  }

  private Left attempt(List<Integer> asked, Body.Content content, Budget budget)
      throws TableException, InterruptedException {
    double withinS = budget.attempt(settings.timeoutS());
    try {
      return leftOf(asked, service.batch(content, withinS, meter), budget);
    } catch (Fault fault) {
      return leftAfter(fault, asked, budget);
    }
  }

  /** What is left where a request has failed as a whole. */
  private Left leftAfter(Fault fault, List<Integer> asked, Budget budget) throws TableException {
    if (fault.tooLarge() || fault.retriable) return Left.of(asked, List.of(fault));
    boolean absent = layout == Layout.ASSUMED && Outcome.TABLE_NOT_FOUND.equals(fault.code);
    for (int position : asked) {
      if (!absent || !(operations.get(position) instanceof Operation.Get)) throw failure(position, fault, budget);
      outcomes.set(position, new Outcome(fault.status, null, null, fault.code, fault.detail));
    }
    return Left.NOTHING;
  }

  private Left leftOf(List<Integer> asked, Answer answer, Budget budget) throws TableException, Fault {
    List<JsonNode> results = results(answer, asked.size());
    List<Integer> left = new ArrayList<>();
    List<Fault> faults = new ArrayList<>();
    for (int index = 0; index < asked.size(); index++) {
      Fault fault = settle(asked.get(index), results.get(index), answer.retryAfterS());
      if (fault == null) continue;
      if (!fault.retriable) throw failure(asked.get(index), fault, budget);
      left.add(asked.get(index));
      faults.add(fault);
    }
    return Left.of(left, faults);
  }

  private static List<JsonNode> results(Answer answer, int count) throws Fault {
    try {
      List<JsonNode> results = Json.results(answer.stream());
      if (results.size() == count) return results;
    } catch (IOException error) {
      // As an answer to something else.
    }
    throw Fault.passing(Fault.UNEXPECTED, answer.status(), "an answer that is not the service's own, or not whole");
  }

  /** Keeps what became of an operation; or returns why that is not known yet. */
  private Fault settle(int position, JsonNode result, double retryAfterS) throws Fault {
    int status = result.path("status").asInt();
    JsonNode error = result.path("error");
    if (status < 200 || (status >= 300) != error.isObject()) {
      throw Fault.passing(Fault.UNEXPECTED, 200, "a result that is not the service's own");
    }
    if (status < 300) {
      outcomes.set(position, new Outcome(status, result.get("value"), result.path("etag").textValue(), null, null));
      return null;
    }
    Fault fault = Fault.of(status, error, retryAfterS);
    if (!EXPECTED.contains(fault.code)) return fault;
    outcomes.set(position, new Outcome(status, null, null, fault.code, fault.detail));
    return null;
  }

  /** Asks in two requests for what was too large for one; what is too large alone has failed. */
  private void halve(List<Integer> left, List<Integer> asked, Fault fault, Budget budget)
      throws TableException, InterruptedException {
    if (asked.size() == 1) throw failure(left.get(0), fault, budget);
    int middle = (left.size() + 1) / 2;
    for (List<Integer> half : List.of(left.subList(0, middle), left.subList(middle, left.size()))) {
      if (half.isEmpty()) continue;
      meter.retries.increment();
      settle(half, body(half), budget);
    }
  }

  private Body body(List<Integer> positions) {
    try {
      return Body.of(layout, positions.stream().map(operations::get).toList());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private TableException failure(int position, Fault fault, Budget budget) {
    Operation operation = operations.get(position);
    return TableException.of(settings, operation.verb() + " of " + operation.key(), budget, fault);
  }
}
