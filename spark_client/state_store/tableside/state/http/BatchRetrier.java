package tableside.state.http;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;

/** Sends the operations of one call, and retries them until each has an outcome. */
final class BatchRetrier {
  /** Error codes that are outcomes for the caller, not failures. */
  private static final Set<String> EXPECTED_CODES = Set.of(Outcome.RECORD_NOT_FOUND, Outcome.PRECONDITION_FAILED);

  private final Settings settings;
  private final KeyLayout layout;
  private final ServiceClient service;
  private final List<Operation> operations;
  private final StoreCounters counters;
  private final BooleanSupplier callFailed;
  private final AtomicReferenceArray<Outcome> outcomes;

  /** Creates a retrier. It stops retrying once `callFailed` is true, because another request of the call has failed. */
  BatchRetrier(
      Settings settings, KeyLayout layout, ServiceClient service, List<Operation> operations, StoreCounters counters,
      BooleanSupplier callFailed) {
    this.settings = settings;
    this.layout = layout;
    this.service = service;
    this.operations = operations;
    this.counters = counters;
    this.callFailed = callFailed;
    this.outcomes = new AtomicReferenceArray<>(operations.size());
  }

  /** One outcome per operation, in order. Call this after all operations have been resolved. */
  List<Outcome> outcomes() {
    return IntStream.range(0, operations.size()).mapToObj(outcomes::get).toList();
  }

  /** Sends these operations and retries those that fail with a retriable error. */
  void resolve(List<Integer> positions, BatchBody body, RequestBudget budget)
      throws TableException, InterruptedException {
    List<Integer> requested = positions;
    BatchBody.Content content = body.content();
    while (true) {
      Unresolved remaining = attempt(requested, content, budget);
      if (remaining.positions.isEmpty()) return;
      if (remaining.tooLarge) {
        split(remaining.positions, requested, remaining.failure, budget);
        return;
      }
      boolean retry = !callFailed.getAsBoolean() && budget.pause(remaining.failure, remaining.pauseS);
      if (!retry) throw failure(remaining.positions.get(0), remaining.failure, budget);
      counters.retries.increment();
      if (remaining.positions.size() < requested.size()) content = body(remaining.positions).content();
      requested = remaining.positions;
    }
  }

  /**
   * The operations of a request without an outcome: the failure of the first, the longest pause that the service
   * requests, and whether all of them failed only because the response would be too large.
   */
  private record Unresolved(List<Integer> positions, AttemptException failure, double pauseS, boolean tooLarge) {
    static final Unresolved NOTHING = new Unresolved(List.of(), null, 0, false);

    static Unresolved of(List<Integer> positions, List<AttemptException> failures) {
      if (positions.isEmpty()) return NOTHING;
      double pauseS = failures.stream().mapToDouble(failure -> failure.retryAfterS).max().orElse(0);
      return new Unresolved(positions, failures.get(0), pauseS, failures.stream().allMatch(AttemptException::tooLarge));
    }
  }

  private Unresolved attempt(List<Integer> requested, BatchBody.Content content, RequestBudget budget)
      throws TableException, InterruptedException {
    double timeoutS = budget.startAttempt(settings.timeoutS());
    try {
      return unresolvedAfter(requested, service.batch(content, timeoutS, counters), budget);
    } catch (AttemptException failure) {
      return unresolvedAfterFailure(failure, requested, budget);
    }
  }

  /** The operations without an outcome after a whole request has failed. */
  private Unresolved unresolvedAfterFailure(
      AttemptException failure, List<Integer> requested, RequestBudget budget) throws TableException {
    if (failure.tooLarge() || failure.retriable) return Unresolved.of(requested, List.of(failure));
    boolean absent = layout == KeyLayout.ASSUMED && Outcome.TABLE_NOT_FOUND.equals(failure.code);
    for (int position : requested) {
      if (!absent || !(operations.get(position) instanceof Operation.Get)) throw failure(position, failure, budget);
      outcomes.set(position, new Outcome(failure.status, null, null, failure.code, failure.detail));
    }
    return Unresolved.NOTHING;
  }

  private Unresolved unresolvedAfter(List<Integer> requested, ServiceResponse response, RequestBudget budget)
      throws TableException, AttemptException {
    List<JsonNode> results = parseResults(response, requested.size());
    List<Integer> remaining = new ArrayList<>();
    List<AttemptException> failures = new ArrayList<>();
    for (int index = 0; index < requested.size(); index++) {
      AttemptException failure = resolve(requested.get(index), results.get(index), response.retryAfterS());
      if (failure == null) continue;
      if (!failure.retriable) throw failure(requested.get(index), failure, budget);
      remaining.add(requested.get(index));
      failures.add(failure);
    }
    return Unresolved.of(remaining, failures);
  }

  private static List<JsonNode> parseResults(ServiceResponse response, int count) throws AttemptException {
    try {
      List<JsonNode> results = Json.results(response.stream());
      if (results.size() == count) return results;
    } catch (IOException error) {
      // Treated like a response with the wrong number of results.
    }
    throw AttemptException.ofUnreadableResponse(response.status());
  }

  /** Stores the outcome of an operation, or returns the failure that leaves it unresolved. */
  private AttemptException resolve(int position, JsonNode result, double retryAfterS) throws AttemptException {
    int status = result.path("status").asInt();
    JsonNode error = result.path("error");
    if (status < 200 || (status >= 300) != error.isObject()) {
      throw AttemptException.retriable(AttemptException.UNEXPECTED, 200, "a result is not from the service");
    }
    if (status < 300) {
      outcomes.set(position, new Outcome(status, result.get("value"), result.path("etag").textValue(), null, null));
      return null;
    }
    AttemptException failure = AttemptException.of(status, error, retryAfterS);
    if (!EXPECTED_CODES.contains(failure.code)) return failure;
    outcomes.set(position, new Outcome(status, null, null, failure.code, failure.detail));
    return null;
  }

  /** Splits a request that was too large into two. An operation that is too large by itself fails. */
  private void split(List<Integer> remaining, List<Integer> requested, AttemptException failure, RequestBudget budget)
      throws TableException, InterruptedException {
    if (requested.size() == 1) throw failure(remaining.get(0), failure, budget);
    int middle = (remaining.size() + 1) / 2;
    for (List<Integer> half : List.of(remaining.subList(0, middle), remaining.subList(middle, remaining.size()))) {
      if (half.isEmpty()) continue;
      counters.retries.increment();
      resolve(half, body(half), budget);
    }
  }

  private BatchBody body(List<Integer> positions) {
    try {
      return BatchBody.of(layout, positions.stream().map(operations::get).toList());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private TableException failure(int position, AttemptException failure, RequestBudget budget) {
    Operation operation = operations.get(position);
    return TableException.of(settings, operation.verb() + " of " + operation.key(), budget, failure);
  }
}
