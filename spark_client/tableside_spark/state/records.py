"""Read, write and scan records by place and item, for tables with simple and composite keys."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tableside_client import Client
from tableside_client.errors import TableError
from tableside_spark.state.key_layout import Key, Place, request_parts

KEYS_ONLY = ("uid",)
"""A member that is short or absent, for scans that need only keys."""


class Records:
    """The records of one table. Requests are limited in size, and retried by the client."""

    def __init__(self, client: Client, table: str) -> None:
        self._client = client
        self._table = client.arrow_table(table)
        self._names: list[str] = []

    def get(self, keys: Sequence[Key], fields: Sequence[str] | None = None) -> list[dict[str, Any] | None]:
        """Return the value of each key in order, limited to `fields`, or None if there is no record."""
        return [value for part in request_parts(keys) for value in self._get(part, fields)]

    def delete(self, keys: Sequence[Key]) -> None:
        """Remove records, request by request in the order of the keys. Absent records are not an error."""
        for part in request_parts(keys):
            response = self._table.batch(pa.table({"key": self._column(part)}), op="delete")
            for row in response.select(["status", "code", "detail"]).to_pylist():
                self._raise_if_failed(row)

    def update(self, key: Key, update: Mapping[str, Any]) -> None:
        """Apply an idempotent update, starting from `{}` if there is no record."""
        column = self._column([key])
        operation = pa.table({"key": column, "update": [json.dumps(update)], "default": ["{}"]})
        response = self._table.batch(operation, op="update", at_least_once=True)
        self._raise_if_failed(response.select(["status", "code", "detail"]).to_pylist()[0])

    def scans_in_order(self) -> bool:
        """Return whether the table can scan one place without reading others."""
        capability = "sorted_scan" if len(self._key_names()) == 1 else "partition_scan"
        return bool(self._described()["capabilities"].get(capability))

    def scan(self, place: str) -> Iterator[list[Key]]:
        """Yield the keys of a place in lists."""
        if len(self._key_names()) == 2:
            pages = self._table.scan(fields=KEYS_ONLY, partition=place)
        else:
            pages = self._table.scan(fields=KEYS_ONLY, prefix=f"{place}/")
        for page in pages:
            yield from request_parts(_key(place, key) for key in page["key"].to_pylist())

    def _get(self, keys: Sequence[Key], fields: Sequence[str] | None) -> Iterator[dict[str, Any] | None]:
        response = self._table.batch(pa.table({"key": self._column(keys)}), op="get", fields=fields)
        for row in response.select(["status", "code", "detail", "value"]).to_pylist():
            if row["code"] == "record_not_found":
                yield None
            else:
                self._raise_if_failed(row)
                yield json.loads(row["value"])

    def _raise_if_failed(self, row: Mapping[str, Any]) -> None:
        if row["code"] is not None:
            raise TableError(self._table.name, row["code"], row["status"], row["detail"])

    def _column(self, keys: Sequence[Key]) -> pa.Array:
        names = self._key_names()
        if len(names) == 1:
            return pa.array([f"{key.place}/{key.item}" for key in keys], pa.string())
        columns = [pa.array([key.place for key in keys]), pa.array([key.item for key in keys])]
        return pa.StructArray.from_arrays(columns, names=names)

    def _key_names(self) -> list[str]:
        if not self._names:
            fields = self._described()["key"]
            if len(fields) > 2 or any(field["type"] != "string" for field in fields):
                raise TableError(self._table.name, "unfit_table", 200, "no table for state: its keys are not strings")
            self._names = [field["name"] or "key" for field in fields]
        return self._names

    def _described(self) -> dict[str, Any]:
        return self._client.table(self._table.name).describe()


def _key(place: str, key: Any) -> Key:
    return Key(*key.values()) if isinstance(key, dict) else Key(place, key.removeprefix(f"{place}/"))


VERSIONS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class VersionAttempts:
    """The uids of all attempts at a version, and the names of all attempts at its snapshots."""

    version: int
    uids: tuple[str, ...]
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """The attempts at the versions from the end of the previous block up to `end` (exclusive)."""

    attempts: list[VersionAttempts]
    end: int

    @property
    def may_continue(self) -> bool:
        """Whether the last version of the block has attempts, so that there may be more blocks."""
        return self.attempts[-1].version == self.end - 1


def floor_version(floor: Mapping[str, Any] | None) -> int:
    """Return the lowest version that may exist, given the floor record of a place."""
    return 1 if floor is None else int(floor["version"])


def attempt_blocks(records: Records, place: Place, start: int) -> Iterator[Block]:
    """Yield all attempts from a version on, in blocks of versions.

    Versions are started without gaps, so the last block is the first one that is not full. A deletion proceeds upwards,
    and stores the floor before the next block.
    """
    while True:
        versions = range(start, start + VERSIONS_AT_ONCE)
        found = records.get([place.attempts(version) for version in versions])
        attempts = [
            VersionAttempts(version, tuple(attempt.get("uids", ())), tuple(attempt.get("snapshots", ())))
            for version, attempt in zip(versions, found, strict=True)
            if attempt is not None
        ]
        if not attempts:
            return
        block = Block(attempts, versions.stop)
        yield block
        if not block.may_continue:
            return
        start = versions.stop
