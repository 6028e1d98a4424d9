"""The `partitions` of an operation or scan, and the partitions that an operation goes to."""

import re

from ...core import InvalidOperation, Operation, TableSpec, Unsupported, target_partitions
from ...core.partitioner import Partitions, parse_partitions

_INDEX = re.compile("-?[0-9]{1,9}")


def choose_partitions(spec: TableSpec, raw: object) -> Partitions:
    """Parse `partitions` in its JSON form.

    Raise Unsupported if the table is not partitioned, InvalidOperation if `raw` is invalid.
    """
    if not spec.partitions:
        raise not_partitioned()
    return parse_partitions(raw, spec.partitions)


def not_partitioned() -> Unsupported:
    """Return the error for `partitions` of a table that has none."""
    return Unsupported("partitions: this table is not partitioned")


def parse_query(text: str) -> object:
    """Return the JSON form of `?partitions=`: indexes separated by commas, `all`, `default`, or an empty text."""
    if text in ("all", "default"):
        return text
    indexes = text.split(",") if text else []
    if not all(_INDEX.fullmatch(index) for index in indexes):
        raise InvalidOperation(
            "partitions must be indexes separated by commas, all, default, or empty for no partition"
        )
    return [int(index) for index in indexes]


def scan_partitions(spec: TableSpec, text: str | None) -> tuple[int, ...] | None:
    """Return the partitions that a scan reads, None for all."""
    if text is None:
        return None
    partitions = choose_partitions(spec, parse_query(text))
    if not partitions:
        raise InvalidOperation("a scan reads at least one partition, and it has no key that could select one")
    return partitions


def operation_partitions(spec: TableSpec, operation: Operation) -> tuple[int, ...]:
    """Return the partitions that an operation goes to: none if it is dropped or its choice is invalid."""
    try:
        return target_partitions(operation, spec.partitions)
    except InvalidOperation:
        return ()
