"""Records in columns are encoded like the answers to the same gets."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.http.api_client import read
from support.pieces import finish
from tableside.core import Record, RecordColumns
from tableside.http.wire import arrow_answers
from tableside.http.wire.answers import answers
from tableside.http.wire.body_parts import PART_BYTES_MIN, Encoded

RECORDS = [Record(b'{"n":%d}' % number, f"{number:032x}") for number in range(40)]
LARGE = Record(b'{"text":"' + b"x" * 2 * PART_BYTES_MIN + b'"}', "f" * 32)


def columns_of(outcomes: Sequence[Record | None]) -> RecordColumns:
    return RecordColumns(
        pa.array([None if outcome is None else outcome.value for outcome in outcomes], pa.binary()),
        pa.array([None if outcome is None else outcome.etag for outcome in outcomes], pa.utf8()),
    )


def table(encoded: Encoded) -> Any:
    body = encoded if isinstance(encoded, bytes) else b"".join(encoded)
    found = read(body)
    found.validate(full=True)
    return found


def check(columns: RecordColumns, outcomes: Sequence[Record | None], *, partitioned: bool) -> None:
    found = table(finish(arrow_answers.encode_columns(columns, partitioned=partitioned)))
    one_by_one = finish(answers(outcomes, bytes_max=2**30, operations=[]))
    expected = table(finish(arrow_answers.encode(one_by_one, partitioned=partitioned)))
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.equals(expected)
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize(
    "outcomes",
    [
        RECORDS,
        [None] * 40,
        [*RECORDS[:10], None, *RECORDS[10:]],
        [None, *RECORDS],
        [*RECORDS, None],
        [None if index % 3 else record for index, record in enumerate(RECORDS)],
        [LARGE, None, LARGE, RECORDS[0]],
        [LARGE, LARGE],
        RECORDS[:1],
        [None],
    ],
    ids=["found", "absent", "one absent", "first", "last", "most", "large", "large found", "one", "one that is absent"],
)
def test_columns_are_encoded_like_answers(outcomes: list[Record | None], partitioned: bool) -> None:
    check(columns_of(outcomes), outcomes, partitioned=partitioned)
    check(columns_of([RECORDS[5], None, *outcomes, None])[2:-1], outcomes, partitioned=partitioned)
    check(columns_of(outcomes)[::-1], outcomes[::-1], partitioned=partitioned)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from([*RECORDS[:3], LARGE]) | st.none(), min_size=1, max_size=60),
    st.integers(0, 10),
    st.booleans(),
)
def test_random_columns_are_encoded_like_answers(outcomes: list[Record | None], offset: int, partitioned: bool) -> None:
    check(columns_of(outcomes), outcomes, partitioned=partitioned)
    if outcomes[offset:]:
        check(columns_of(outcomes)[offset:], outcomes[offset:], partitioned=partitioned)


def test_batches_of_one_length_do_not_affect_each_other() -> None:
    """Columns that are alike in all batches of one length are made once."""
    for absent in (0, 3, 40, 0, 1):
        outcomes = [*[None] * absent, *RECORDS[absent:]]
        for partitioned in (False, True):
            check(columns_of(outcomes), outcomes, partitioned=partitioned)
