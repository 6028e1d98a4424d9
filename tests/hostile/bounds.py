"""The limits of the service and of a table, from the code and from the table's description."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tableside.core.updates import CHANGES_MAX
from tableside.core.values import ELEMENTS_MAX
from tableside.http.endpoints.scans import PAGE_RECORDS_MAX, SPLITS_MAX
from tableside.http.wire.projections import FIELDS_MAX
from tableside.server.request_parser import HEAD_BYTES_MAX, HEADERS_MAX
from tableside.stores.dynamodb.items import ITEM_BYTES_MAX

KEY_BYTES_MAX = 1024
HEAD_ROOM_BYTES = 2048
"""The part of the limit on a head that remains for other headers."""


@dataclass(frozen=True)
class Bounds:
    """The limits that apply to one table."""

    table: str
    body_bytes: int
    operations: int
    response_bytes: int
    value_bytes: int
    head_bytes: int = HEAD_BYTES_MAX - HEAD_ROOM_BYTES
    headers: int = HEADERS_MAX - 16
    elements: int = ELEMENTS_MAX
    changes: int = CHANGES_MAX
    fields: int = FIELDS_MAX
    page_records: int = PAGE_RECORDS_MAX
    splits: int = SPLITS_MAX
    key_bytes: int = KEY_BYTES_MAX

    @property
    def record_bytes(self) -> int:
        """The size of a large record. It leaves room for an update that makes the record larger."""
        return self.value_bytes // 2

    @property
    def operation_bytes(self) -> int:
        """The size of an operation in a full batch with the maximum number of operations."""
        return (self.body_bytes - 100) // self.operations - 1


def bounds_of(description: Mapping[str, Any]) -> Bounds:
    """Return the limits in the description of a table."""
    limits = description["limits"]
    value_bytes = ITEM_BYTES_MAX - 2048 if description["store"]["kind"] == "dynamodb" else limits["value_bytes_max"]
    return Bounds(
        description["name"],
        limits["body_bytes_max"],
        limits["operations_max"],
        limits["response_bytes_max"],
        min(value_bytes, limits["value_bytes_max"], limits["body_bytes_max"]),
    )
