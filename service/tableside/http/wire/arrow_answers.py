"""Answers to a batch as an Arrow IPC stream, with one row per operation."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...core import Record, Results, TableError
from ...core.concurrency import Pieces
from .answers import RECORD_NOT_FOUND, Answer
from .body_parts import Encoded, binary_column, encode_stream
from .members import OUTCOME_MEMBERS, OutcomeMember
from .problems import status

Members: TypeAlias = Collection[OutcomeMember]

_ERRORS = {"code": pa.utf8(), "detail": pa.utf8(), "retriable": pa.bool_(), "applied": pa.utf8()}
"""The columns that are null for a success, and their types."""

_COLUMNS = {"status": pa.uint16(), "value": pa.binary(), "etag": pa.utf8(), **_ERRORS}


def encode(
    answers: Sequence[Answer], members: Members = OUTCOME_MEMBERS, *, partitioned: bool = False
) -> Pieces[Encoded]:
    """Encode the answers, one row each.

    The `members` of outcomes follow the other columns, then `expires_at` if any record has an expiry. For a partitioned
    table, `partitions` and `dropped` are the last ones.
    """
    columns = yield from _columns_of(answers, members)
    if partitioned:
        columns["partitions"] = yield from _partitions(answers, members)
        columns["dropped"] = pa.array([answer.dropped for answer in answers], pa.bool_())
    return encode_stream(pa.record_batch(columns))


def encode_results(
    results: Results, members: Members = OUTCOME_MEMBERS, *, partitioned: bool = False
) -> Pieces[Encoded]:
    """Encode outcomes in columns. `encode` returns the same."""
    etags, values = (_of_successes(results, name, _COLUMNS[name]) for name in ("etag", "value"))
    columns = yield from _columns(_statuses(results), values, etags, _errors(results))
    for member in members:
        cells = _of_successes(results, member.name, member.type, member.absent)
        columns[member.name] = _column(cells, member.type)
    if (expires_ms := _shown_expiries(results)) is not None:
        columns["expires_at"] = expiry_column(expires_ms)
    if partitioned:
        columns["partitions"] = _repeated(None, _partitions_type(members), len(results))
        columns["dropped"] = _repeated(False, pa.bool_(), len(results))
    return encode_stream(pa.record_batch(columns))


def _columns(
    statuses: Sequence[int] | pa.Array,
    values: Sequence[bytes | None] | pa.Array,
    etags: Sequence[str | None] | pa.Array,
    errors: Mapping[int, TableError],
) -> Pieces[dict[str, pa.Array]]:
    """Return the columns that each answer has. `errors` are by row."""
    value_column = values if isinstance(values, pa.Array) else (yield from binary_column(values))
    yield
    status_column, etag_column = _column(statuses, _COLUMNS["status"]), _column(etags, _COLUMNS["etag"])
    columns = {"status": status_column, "value": value_column, "etag": etag_column}
    yield
    for name, kind in _ERRORS.items():
        columns[name] = _repeated(None, kind, len(value_column))
        if errors:
            cells = [None] * len(value_column)
            columns[name] = _column(_replaced(cells, {at: getattr(each, name) for at, each in errors.items()}), kind)
    return columns


def _columns_of(answers: Sequence[Answer], members: Members) -> Pieces[dict[str, pa.Array]]:
    columns = yield from _columns(
        [answer.status for answer in answers],
        [answer.value for answer in answers],
        [answer.etag for answer in answers],
        {at: answer.error for at, answer in enumerate(answers) if answer.error is not None},
    )
    given = [dict(answer.members) for answer in answers]
    for member in members:
        columns[member.name] = pa.array([one.get(member.name, member.absent) for one in given], member.type)
    if any(answer.expires_ms for answer in answers):
        columns["expires_at"] = expiry_column([answer.expires_ms for answer in answers])
    return columns


def _column(cells: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    return cells if isinstance(cells, pa.Array) else pa.array(cells, kind)


@lru_cache(maxsize=64)
def _repeated(cell: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(cell, kind), count)


def _of_successes(results: Results, name: str, kind: pa.DataType, absent: object = None) -> Sequence[Any] | pa.Array:
    """Return a column, in which an error is `absent`."""
    if name not in results.columns:
        return _repeated(absent, kind, len(results))
    column = results.columns[name]
    if isinstance(column, pa.Array) and not results.failed:
        return column
    return _replaced(results.cells(name), dict.fromkeys(results.failed, absent))


def _replaced(cells: Sequence[Any], others: Mapping[int, Any]) -> Sequence[Any]:
    """Return the cells, with others at some positions."""
    if not others:
        return cells
    replaced = [*cells]
    for at, cell in others.items():
        replaced[at] = cell
    return replaced


def _statuses(results: Results) -> Sequence[int] | pa.Array:
    if results.kind is Record:
        if not results.absent_count and not results.failed:
            return _repeated(200, pa.uint16(), len(results))
        statuses = [404 if value is None else 200 for value in results.cells("value")]
    elif results.has_only("etag", "expires_ms"):
        if not results.failed:
            return _repeated(204, pa.uint16(), len(results))
        statuses = [204] * len(results)
    else:
        both = zip(results.cells("created"), results.cells("value"), strict=True)
        statuses = [201 if created else 204 if value is None else 200 for created, value in both]
    return _replaced(statuses, {at: status(error) for at, error in results.failed.items()})


def _errors(results: Results) -> dict[int, TableError]:
    """Return the errors by position. An absent record is one, but not a failure."""
    absent: dict[int, TableError] = {}
    if results.kind is Record and results.absent_count:
        absent = {at: RECORD_NOT_FOUND for at, value in enumerate(results.cells("value")) if value is None}
    return absent | {**results.failed}


def _shown_expiries(results: Results) -> Sequence[int] | None:
    """Return the expiries of the records whose values are shown, None if none expires."""
    if not {"expires_ms", "value"} <= results.columns.keys():
        return None
    shown = [
        0 if value is None or at in results.failed else time
        for at, (value, time) in enumerate(zip(results.cells("value"), results.cells("expires_ms"), strict=True))
    ]
    return shown if any(shown) else None


def expiry_column(expires_ms: Sequence[int]) -> pa.Array:
    """Return a column of RFC 3339 times, null for 0."""
    times = pa.array([time or None for time in expires_ms], pa.timestamp("ms")).cast(pa.utf8())
    return pc.binary_join_element_wise(pc.utf8_replace_slice(times, 10, 11, "T"), "Z", "")


def _partitions_type(members: Members) -> pa.DataType:
    """Return the type of the column of partitions, without times of expiry."""
    outcome = [(member.name, member.type) for member in members]
    return pa.list_(pa.struct([("partition", pa.int32()), *_COLUMNS.items(), *outcome]))


def _partitions(answers: Sequence[Answer], members: Members) -> Pieces[pa.Array]:
    """Return a column with a list per answer: its answers by partition, or null if it has none."""
    lists = [answer.partitions for answer in answers]
    flat = [part for one in lists if one is not None for part in one]
    columns = {
        "partition": pa.array([index for index, _ in flat], pa.int32()),
        **(yield from _columns_of([part for _, part in flat], members)),
    }
    each = pa.StructArray.from_arrays([*columns.values()], names=[*columns])
    ends = list(accumulate((len(one or ()) for one in lists), initial=0))
    starts = [None if one is None else start for one, start in zip(lists, ends, strict=False)]
    return pa.ListArray.from_arrays(pa.array([*starts, ends[-1]], pa.int32()), each)
