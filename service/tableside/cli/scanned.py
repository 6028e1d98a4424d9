"""Records in files: `scan` writes them as JSON objects, and `load` recognizes these and writes the same records."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tableside_client import Record
from tableside_client.paths import given

MEMBERS = frozenset({"key", "partition", "partitions", "value", "etag", "expires_at"})

Document = dict[str, Any]
"""A record as a JSON object. `partition` is the index of its partition, of as many as `partitions`."""


def document_of(record: Record[dict[str, Any]], partitions: int | None) -> Document:
    """Return the JSON object of a record, whose table has this number of partitions, None if it has none."""
    place = given(partition=record.partition, partitions=partitions)
    return {
        "key": record.key,
        **place,
        "value": record.value,
        "etag": record.etag,
        **given(expires_at=record.expires_at),
    }


def is_document(row: Mapping[str, Any]) -> bool:
    """Return whether a row is the JSON object of a record."""
    return {"key", "value", "etag"} <= row.keys() <= MEMBERS and isinstance(row["value"], dict)


def options_of(document: Document, table: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the members of a put that keep a record's partition and expiry, None if the record has expired.

    `table` is the description of the table to write to. Raise ValueError if it has another number of partitions.
    """
    options: dict[str, Any] = {}
    if (partition := document.get("partition")) is not None:
        _check_partitions(document.get("partitions"), table.get("partitions"))
        options["partitions"] = [partition]
    if (expires_at := document.get("expires_at")) is not None:
        options["ttl_s"] = _remaining_s(expires_at)
        return options if options["ttl_s"] > 0 else None
    has_default = table["policies"]["ttl_s"] is not None
    return options | ({"ttl_s": -1} if has_default else {})


def _check_partitions(source: Any, target: int | None) -> None:
    if target is None or source not in (None, target):
        raise ValueError(
            f"the record is from a table with {source or 'several'} partitions, and this table has {target or 'none'}: "
            "remove partition from the file to write records to the partitions of their keys"
        )


def _remaining_s(expires_at: Any) -> float:
    try:
        return datetime.fromisoformat(expires_at).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        raise ValueError("expires_at is not a time such as 2026-11-20T08:00:00Z") from None
