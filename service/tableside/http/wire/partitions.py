"""What a caller says of partitions, whichever way it was sent, and where what he asks goes."""

import re

from ...core import InvalidOperation, Operation, TableSpec, Unsupported, target_partitions
from ...core.partitioner import Partitions, parse_partitions

_INDEX = re.compile("-?[0-9]{1,9}")


def choice(spec: TableSpec, raw: object) -> Partitions:
    """Return the partitions that `raw` chooses. Raise Unsupported where there are none, InvalidOperation if illegal."""
    if not spec.partitions:
        raise Unsupported("partitions: this table is not partitioned")
    return parse_partitions(raw, spec.partitions)


def from_query(text: str) -> object:
    """Return what `?partitions=` says, as JSON would: indexes with commas between them, all, default, or nothing."""
    if text in ("all", "default"):
        return text
    indexes = text.split(",") if text else []
    if not all(_INDEX.fullmatch(index) for index in indexes):
        raise InvalidOperation("partitions is indexes with commas between them, all, default, or empty for nowhere")
    return [int(index) for index in indexes]


def of_scan(spec: TableSpec, text: str | None) -> tuple[int, ...] | None:
    """Return the partitions that a scan reads, None for all."""
    if text is None:
        return None
    partitions = choice(spec, from_query(text))
    if not partitions:
        raise InvalidOperation("a scan reads one partition at least, and has no key that could choose it")
    return partitions


def places(spec: TableSpec, operation: Operation) -> tuple[int, ...]:
    """Return the partitions of a table that an operation goes to; none where it goes nowhere, or cannot go there."""
    try:
        return target_partitions(operation, spec.partitions)
    except InvalidOperation:
        return ()
