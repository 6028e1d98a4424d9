"""Reduces the values of a batch to the requested members, each distinct value once."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import Budget, Outcome, PartitionOutcome, Record, Results, TableError, TooLarge, Written, chunks_of
from ...core.budget import NOT_PROJECTED
from ...core.concurrency import PIECE_BYTES, Pieces
from ...core.errors import InvalidOperation

Fields = frozenset[str] | None
"""The names of the requested members of values, None for all."""

FIELDS_MAX = 1000

VALUES_MIN = 100
"""A decoder is made for at least so many values: making it takes as long as 20 to 200 projections without it."""

DECODER_FIELDS_MAX = 32
"""The decoder compares each name in a value with each of the fields."""

LARGE_BYTES = 2**14
"""Values of at least this size are always reduced by a decoder that skips the other members."""

SMALL_RECORDS = 256
"""The maximum number of smaller values that are reduced before other requests have a turn."""

DECODERS_MAX = 64
"""How many decoders are kept. Each takes up to 16 KB."""

DECODED_BYTES_MAX = 2**30
"""The maximum size of the values that are reduced for one batch. A value counts once for each set of fields."""

COLUMN_BYTES_MAX = 2**24
"""The maximum size of values that are reduced in their order. Among more, some may repeat, and are reduced once."""

_VALUE_BYTES = PIECE_BYTES // SMALL_RECORDS
"""Reducing a value takes at least as long as so many bytes."""

_MEMBERS: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_ESCAPED = frozenset('"\\') | frozenset(map(chr, range(32)))

_TOO_MUCH = TooLarge(
    f"the requested fields are in more than {DECODED_BYTES_MAX} bytes of values: request this record again",
    retriable=True,
)


def fields_of(raw: object) -> Fields:
    """Return the fields in an array of names. Raise InvalidOperation if it is invalid."""
    if raw is None:
        return None
    if not isinstance(raw, (list, tuple)) or len(raw) > FIELDS_MAX:
        raise InvalidOperation(f"fields must be an array of at most {FIELDS_MAX} names")
    if not all(isinstance(name, str) and name for name in raw):
        raise InvalidOperation("fields must be an array of names")
    return frozenset(raw)


def project_value(value: bytes, fields: frozenset[str]) -> bytes:
    """Reduce the text of a single value to the given top-level members."""
    return projection(fields, VALUES_MIN if len(value) >= LARGE_BYTES else 1)(value)


def common_fields(fields: Sequence[Fields]) -> Fields:
    """Return the fields if all operations request the same, else None."""
    return fields[0] if fields and fields.count(fields[0]) == len(fields) else None


def project_outcomes(
    outcomes: Sequence[Outcome], fields: Sequence[Fields], budget: Budget
) -> Pieces[Sequence[Outcome]]:
    """Reduce the values of the outcomes to the fields at the same positions.

    After the deadline, the gets that remain end as DeadlineExceeded. Beyond `DECODED_BYTES_MAX` they end as TooLarge.
    Writes that remain have no value, because they have already taken effect.
    """
    results = Results.of(outcomes)
    gets = results is not None and results.kind is Record and results.value_bytes <= COLUMN_BYTES_MAX
    if results is not None and gets and (common := common_fields(fields)) is not None:
        return (yield from _project_column(results, common, budget))
    # Gets of the same record have the same object as value. The outcomes keep these objects alive.
    reduced: dict[tuple[int, frozenset[str]], bytes] = {}
    decoded_bytes = piece_bytes = 0
    refusal: TableError | None = None

    def reduce(only: frozenset[str], value: bytes) -> bytes:
        nonlocal piece_bytes
        if (known := reduced.get((id(value), only))) is None:
            piece_bytes += max(len(value), _VALUE_BYTES)
            known = project_value(value, only)
            if len(value) >= LARGE_BYTES:
                reduced[id(value), only] = known
        return known

    found: list[Outcome] = []
    for outcome, only in zip(outcomes, fields, strict=True):
        if only is None or outcome is None:
            found.append(outcome)
        elif isinstance(outcome, Record):
            found.append(refusal or replace(outcome, value=reduce(only, outcome.value)))
        else:
            found.append(with_values(outcome, partial(reduce, only) if refusal is None else lambda value: None))
        if piece_bytes >= PIECE_BYTES:
            decoded_bytes, piece_bytes = decoded_bytes + piece_bytes, 0
            yield
            refusal = NOT_PROJECTED if budget.is_over() else _TOO_MUCH if decoded_bytes >= DECODED_BYTES_MAX else None
    return found


def _project_column(results: Results, fields: frozenset[str], budget: Budget) -> Pieces[Results]:
    """Reduce the values of gets that all request the same members."""
    reduce, found = projection(fields, len(results)), list[bytes | None]()
    failed = dict(results.failed)
    for values in chunks_of(results.cells("value"), SMALL_RECORDS, PIECE_BYTES, lambda value: len(value or b"")):
        if found and budget.is_over():
            late = range(len(found), len(results))
            failed.update({at: NOT_PROJECTED for at in late if results[at] is not None})
            found += [None] * len(late)
            break
        found += [None if value is None else reduce(value) for value in values]
        yield
    return Results(Record, {**results.columns, "value": found}, failed)


def with_values(outcome: Written | TableError, change: Callable[[bytes], bytes | None]) -> Written | TableError:
    """Return the outcome of a write with changed values, its own and those of its partitions."""
    parts = outcome.partitions
    if parts:
        parts = tuple(PartitionOutcome(one.partition, with_values(one.outcome, change)) for one in parts)
    if isinstance(outcome, Written):
        value = None if outcome.value is None else change(outcome.value)
        return replace(outcome, value=value, partitions=parts)
    if parts:
        outcome = copy(outcome)
        outcome.partitions = parts
    return outcome


def projection(fields: frozenset[str], count: int) -> Callable[[bytes], bytes]:
    """Return a function that reduces the text of a value to the given top-level members, to be used `count` times."""
    if count < VALUES_MIN or len(fields) > DECODER_FIELDS_MAX or not _ESCAPED.isdisjoint("".join(fields)):
        members = _MEMBERS.decode  # It does not decode what they contain.
        return lambda text: _ENCODER.encode({name: raw for name, raw in members(text).items() if name in fields})
    decode = _decoder(fields).decode
    return lambda text: _ENCODER.encode(decode(text))


@lru_cache(maxsize=DECODERS_MAX)
def _decoder(fields: frozenset[str]) -> msgspec.json.Decoder[Any]:
    attributes = {f"member_{index}": name for index, name in enumerate(sorted(fields))}
    members = [(attribute, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for attribute in attributes]
    return msgspec.json.Decoder(msgspec.defstruct("Projected", members, rename=attributes, gc=False))
