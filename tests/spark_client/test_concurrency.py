"""A job stays within its share of the service's limits and within the caller's bounds."""

from hypothesis import given, strategies as st

from tableside_client.arrow_table import ChunkSize
from tableside_client.table_schema import ServiceLimits
from tableside_spark.plan.concurrency import JOB_SHARE, concurrency

some = st.integers(1, 200_000)


@given(st.builds(ServiceLimits, some, some, some, some, some), some, some, st.builds(ChunkSize, some, some))
def test_no_limit_and_no_bound_is_exceeded(limits: ServiceLimits, slots: int, in_flight: int, chunk: ChunkSize) -> None:
    found = concurrency(limits, slots, in_flight, chunk)
    requests = found.tasks * found.window
    assert 1 <= found.tasks <= slots
    assert found.window >= 1
    assert 1 <= found.chunk.rows_max <= min(chunk.rows_max, limits.operations_max)
    assert 1 <= found.chunk.bytes_max <= min(chunk.bytes_max, limits.body_bytes_max)
    assert requests <= min(in_flight, max(1, JOB_SHARE * limits.in_flight_max))
    assert requests * found.chunk.rows_max <= max(1, JOB_SHARE * limits.operations_in_flight_max)
    assert requests * found.chunk.bytes_max <= max(1, JOB_SHARE * limits.bytes_in_flight_max)


def test_many_tasks_send_smaller_requests() -> None:
    few, many = (concurrency(ServiceLimits(), slots, 32, ChunkSize()) for slots in (2, 100))
    assert (few.tasks, few.window, few.chunk.rows_max) == (2, 5, 5_000)
    assert (many.tasks, many.window, many.chunk.rows_max) == (32, 1, 1_562)


def test_limits_that_a_description_does_not_contain_have_their_defaults() -> None:
    found = ServiceLimits.from_description({"operations_max": 7, "value_bytes_max": 5})
    assert found == ServiceLimits(operations_max=7)
