"""Generations, the complete contents of a table, and the calls that list and change them."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from tableside_client.calls import Call, CallLimits, CallSettings
from tableside_client.http1 import Request
from tableside_client.paths import JSON, given, json_bytes, table_path

CLEANUP_S = 5.0
"""The maximum time to remove a generation after a failure, and to keep one alive, in seconds.

The service removes a generation that is not written, so giving up is harmless.
"""


@dataclass(frozen=True, slots=True)
class Generation:
    """One complete content of a table. Times are RFC 3339 in UTC.

    Attributes:
        generation: The number. The table `planes@8` is generation 8 of `planes`.
        state: `current` is what requests without a number read and write. `loading` takes writes by its number, `kept`
            can be activated again.
        created_at: The time of its creation, or None for what the table had before.
        activated_at: The time at which it became current, or None.
        records_estimate: About the number of its records, or None if the store does not know it.
        bytes_estimate: About its size in the store, in bytes, or None if the store does not know it.
        note: The text that its creator gave, or None.
    """

    generation: int
    state: Literal["loading", "current", "kept"]
    created_at: str | None = None
    activated_at: str | None = None
    records_estimate: int | None = None
    bytes_estimate: int | None = None
    note: str | None = None

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of the service. Members of later versions are ignored."""
        return cls(**{field.name: entry[field.name] for field in fields(cls) if field.name in entry})


class GenerationCalls:
    """The calls of the generations of one table. Each method returns a generator that a client runs."""

    def __init__(self, table: str, settings: CallSettings) -> None:
        self._table = table
        self._settings = settings

    def list(self) -> Call[list[Generation]]:
        """Return the generations by rising number."""
        request = Request("GET", table_path(self._table, "generations"), self._table)
        response = yield from CallLimits(self._settings).send_with_retries(request)
        return [Generation.from_entry(entry) for entry in response.json()["generations"]]

    def create(self, note: str | None) -> Call[Generation]:
        """Create an empty generation, once, however often the request is sent."""
        headers = {"Content-Type": JSON, "Idempotency-Key": f"client-{uuid.uuid4().hex}"}
        path, content = table_path(self._table, "generations"), json_bytes(given(note=note))
        return (yield from self._entry(Request("POST", path, self._table, headers=headers, content=content)))

    def activate(self, number: int, expected: int | None) -> Call[Generation]:
        """Make a generation current."""
        path = table_path(self._table, "generations", str(number), "activate")
        return (yield from self._entry(Request("POST", path, self._table, given(expected=expected))))

    def remove(self, number: int) -> Call[None]:
        """Remove a generation, if it is there."""
        path = table_path(self._table, "generations", str(number))
        yield from CallLimits(self._settings).send_with_retries(Request("DELETE", path, self._table))

    def clean_up(self, number: int) -> Call[None]:
        """Remove a generation after a failure, unless that takes longer than `CLEANUP_S`."""
        yield from GenerationCalls(self._table, replace(self._settings, deadline_s=CLEANUP_S)).remove(number)

    def keep_alive(self, number: int, key_types: Sequence[str]) -> Call[None]:
        """Send a write that changes nothing to a generation, which is removed if it is not written for too long."""
        table, parts = f"{self._table}@{number}", [0 if kind == "integer" else "0" for kind in key_types]
        key = parts if len(parts) > 1 else parts[0]
        content = json_bytes({"operations": [{"op": "update", "key": key, "update": {}}]})
        path = table_path(table, "batch")
        request = Request("POST", path, table, headers={"Content-Type": JSON}, content=content)
        yield from CallLimits(replace(self._settings, deadline_s=CLEANUP_S)).send_with_retries(request)

    def _entry(self, request: Request) -> Call[Generation]:
        response = yield from CallLimits(self._settings).send_with_retries(request)
        return Generation.from_entry(response.json())
