"""The results of operations: records, the results of writes, and the outcomes of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import httpx

from tableside_client.errors import TablesideError

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Record(Generic[V]):
    """A record.

    Attributes:
        key: A string or an integer, or a tuple of them for a composite key.
        value: The JSON object, or the object of the table's type.
        etag: The version of the value, for `if_match`, or None if the store has no versions.
        expires_at: The time of expiry (RFC 3339), or None if the record does not expire.
        partition: In a scan of a partitioned table, the index of the record's partition, otherwise None.
    """

    key: Any
    value: V
    etag: str | None
    expires_at: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        etag: The version of the new value, or None.
        created: True if a put with `if_absent` or an update's default created the record. Always False for a plain
            put, which does not report whether there was a record.
        replayed: True if the write had already been applied with the caller's token. It changed nothing now.
        value: The new value if it was requested, else None.
    """

    etag: str | None
    created: bool
    replayed: bool
    value: dict[str, Any] | None = None

    @classmethod
    def from_response(cls, response: httpx.Response) -> Self:
        """Read the response to a PUT, PATCH or DELETE."""
        return cls(
            etag_of(response),
            response.status_code == 201,
            response.headers.get("tableside-replayed") == "true",
            response.json() if response.content else None,
        )

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Self:
        """Read one result of a batch in JSON."""
        return cls(result.get("etag"), result["status"] == 201, bool(result.get("replayed")), result.get("value"))


@dataclass(frozen=True, slots=True)
class Outcome(Generic[V]):
    """The outcome of one operation of a batch.

    Attributes:
        status: The HTTP status that the single request would have had.
        value: The value of a get, or of a write that returns it, otherwise None.
        etag: The version of the value, or None.
        expires_at: The time of expiry (RFC 3339), or None.
        replayed: True if a write had already been applied with the caller's token.
        error: Why the operation failed, or None.
    """

    status: int
    value: V | None = None
    etag: str | None = None
    expires_at: str | None = None
    replayed: bool = False
    error: TablesideError | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation succeeded."""
        return self.error is None


def etag_of(response: httpx.Response) -> str | None:
    """Return the etag of a response without its quotes."""
    etag: str | None = response.headers.get("etag")
    return None if etag is None else etag.removeprefix("W/").strip('"')
