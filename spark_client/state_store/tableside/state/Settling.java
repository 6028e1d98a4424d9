package tableside.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;

/** What becomes of the operations of one call, which are asked for in requests, until each is settled. */
final class Settling {
  /** What the caller asked to know, rather than trouble. */
  private static final Set<String> EXPECTED = Set.of(Outcome.RECORD_NOT_FOUND, Outcome.PRECONDITION_FAILED);

  private final Settings settings;
  private final Layout layout;
  private final Service service;
  private final List<Operation> operations;
  private final Meter meter;
  private final BooleanSupplier othersFailed;
  private final AtomicReferenceArray<Outcome> outcomes;

  /** Nothing is asked again once another request of the call has failed. */
  Settling(
      Settings settings,
      Layout layout,
      Service service,
      List<Operation> operations,
      Meter meter,
      BooleanSupplier othersFailed) {
    this.settings = settings;
    this.layout = layout;
    this.service = service;
    this.operations = operations;
    this.meter = meter;
    this.othersFailed = othersFailed;
    this.outcomes = new AtomicReferenceArray<>(operations.size());
  }

  /** One outcome per operation, in order, once all are settled. */
  List<Outcome> outcomes() {
    return IntStream.range(0, operations.size()).mapToObj(outcomes::get).toList();
  }

  /** Asks for these operations, and again for those that have failed in a way that may pass. */
  void settle(List<Integer> positions, Body body, Budget budget) throws TableException, InterruptedException {
    List<Integer> asked = positions;
    Body.Content content = body.content();
    while (true) {
      Left left = attempt(asked, content, budget);
      if (left.positions.isEmpty()) return;
      if (left.tooLarge) {
        halve(left.positions, asked, left.fault, budget);
        return;
      }
      boolean again = !othersFailed.getAsBoolean() && budget.pause(left.fault, left.pauseS);
      if (!again) throw failure(left.positions.get(0), left.fault, budget);
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
