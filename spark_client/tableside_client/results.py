"""The results of single operations, read from a response or from a batch's result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx


@dataclass(frozen=True, slots=True)
class Record:
    """A record that `TableClient.get` returns.

    Attributes:
        value: The JSON object.
        etag: The version of the value, for `if_match`; None if the store has no versions.
        expires_at: The time of expiry (RFC 3339), or None if the record does not expire.
    """

    value: dict[str, Any]
    etag: str | None
    expires_at: str | None = None

    @classmethod
    def from_response(cls, response: httpx.Response) -> Self:
        """Read the response to a GET."""
        return cls(response.json(), _etag(response), response.headers.get("tableside-expires-at"))

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Self:
        """Read one result of a batch in JSON."""
        return cls(result["value"], result.get("etag"), result.get("expires_at"))


@dataclass(frozen=True, slots=True)
class Written:
    """The result of `TableClient.put`, `update` and `delete`.

    Attributes:
        etag: The version of the new value, or None.
        created: True if a put with `if_absent` or an update's default created the record. Always False for a plain
            put, which does not report whether there was a record.
        replayed: True if the write had already been applied with the same token; it changed nothing now.
        value: The new value if `return_` was set, else None.
    """

    etag: str | None
    created: bool
    replayed: bool
    value: dict[str, Any] | None = None

    @classmethod
    def from_response(cls, response: httpx.Response) -> Self:
        """Read the response to a PUT, PATCH or DELETE."""
        return cls(
            _etag(response),
            response.status_code == 201,
            response.headers.get("tableside-replayed") == "true",
            response.json() if response.content else None,
        )

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Self:
        """Read one result of a batch in JSON."""
        return cls(result.get("etag"), result["status"] == 201, bool(result.get("replayed")), result.get("value"))


def _etag(response: httpx.Response) -> str | None:
    etag: str | None = response.headers.get("etag")
    return None if etag is None else etag.removeprefix("W/").strip('"')
