"""The values that a task remembers: each key is requested once, within limits, and while keys repeat."""

from collections import deque
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tableside_client.key_columns import distinct_keys
from tableside_spark.executor.remembered_values import KeyMemory, RememberedLimits


def value(key: object) -> str:
    return f"value of {key}"


def join(memory: KeyMemory, chunks: Iterable[pa.Array], in_flight: int = 1) -> tuple[list[str], list[list[object]]]:
    """Return the value of each row, and the keys of each request. Plans are ahead of values by `in_flight` chunks."""
    rows: list[str] = []
    requests: list[list[object]] = []
    waiting: deque[tuple[object, pa.Array]] = deque()

    def finish() -> None:
        planned, positions = waiting.popleft()
        found = pa.record_batch([pa.array(map(value, requests[len(requests) - len(waiting) - 1]), pa.string())], ["v"])
        rows.extend(planned.values(found, positions).column("v").to_pylist())  # type: ignore[attr-defined]

    for chunk in chunks:
        columns = chunk.flatten() if pa.types.is_struct(chunk.type) else [chunk]
        keys = distinct_keys(columns, [str(position) for position in range(len(columns))])
        planned = memory.plan(keys.keys)
        requests.append(planned.new.to_pylist())
        waiting.append((planned, None if keys.is_identity else keys.positions))
        if len(waiting) >= in_flight:
            finish()
    while waiting:
        finish()
    return rows, requests


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=9), max_size=12),
    st.integers(1, 3),
    st.integers(1, 30),
    st.integers(1, 400),
)
def test_each_row_gets_the_value_of_its_key(
    chunks: Sequence[Sequence[int]], in_flight: int, keys_max: int, bytes_max: int
) -> None:
    memory = KeyMemory(RememberedLimits(keys_max, bytes_max))
    rows, _ = join(memory, [pa.array(chunk, pa.int64()) for chunk in chunks], in_flight)
    assert rows == [value(key) for chunk in chunks for key in chunk]


def test_a_task_with_too_many_keys_forgets_them_and_starts_again() -> None:
    chunks = [pa.array(keys) for keys in ([1, 2], [1, 3], [1, 4], [1, 4])]
    _, requests = join(KeyMemory(RememberedLimits(keys_max=4, repeated_min=0.2)), chunks)
    assert requests == [[1, 2], [3], [1, 4], []]


@pytest.mark.parametrize(("bytes_max", "last"), [(1, [1, 2]), (10_000, [])])
def test_a_task_with_too_many_bytes_forgets_them(bytes_max: int, last: list[int]) -> None:
    memory = KeyMemory(RememberedLimits(bytes_max=bytes_max, repeated_min=0.0))
    _, requests = join(memory, [pa.array([1, 2]), pa.array([1, 2])])
    assert requests == [[1, 2], last]


def test_a_task_whose_keys_do_not_repeat_stops_remembering_them() -> None:
    memory = KeyMemory(RememberedLimits(keys_max=2, repeated_min=0.1))
    _, requests = join(memory, [pa.array([1, 2]), pa.array([3]), pa.array([3])])
    assert requests == [[1, 2], [3], [3]]
