"""State as the provider writes it, record by record, in tables with both kinds of keys, for tests without Spark."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.running import running
from tableside_client import Client

TIME = "2026-11-22T01:02:03.004Z"
CONFIG = """
stores: {s: {kind: memory}}
tables:
  pair: {store: s, key: {place: string, item: string}}
  string: {store: s}
  other: {store: s, key: {place: string, item: integer}}
"""
TABLES = ["pair", "string"]


@dataclass
class Written:
    """Writes records of a query to a table, and keeps the set of their keys."""

    client: Client
    table: str
    query: str
    records: set[tuple[str, str]] = field(default_factory=set)

    def put(self, place: str, item: str, value: Mapping[str, Any]) -> None:
        """Write a record of the query."""
        self.client.table(self.table).put(self.key(place, item), value)
        self.records.add((place, item))

    def key(self, place: str, item: str) -> tuple[str, str] | str:
        """Return a key in the form of the table."""
        return (place, item) if self.table == "pair" else f"{place}/{item}"

    def describe(self, stores: Mapping[str, Mapping[str, int]]) -> None:
        """Write the description of the query: the stores of each operator, and their numbers of partitions."""
        operators = {
            operator: {name: {"partitions": count} for name, count in named.items()}
            for operator, named in stores.items()
        }
        described = {"checkpoint": "/checkpoints/a", "created": TIME, "operators": operators}
        self.put(self.query, "query", described)
        self.put(self.query, "runs", {"first": 1, "runs": ["a-run"]})
        update = {"$set": {self.query: True}}
        self.client.table(self.table).update(self.key("queries", self.query[-1]), update, default={})

    def attempt(self, place: str, version: int, *uids: str, snapshots: Sequence[str] = ()) -> None:
        """Write the attempts at a version."""
        self.put(place, f"attempts/{version:020d}", {"uids": list(uids), "snapshots": list(snapshots)})

    def chunks(self, place: str, items: str, count: int) -> None:
        """Write chunks."""
        for index in range(count):
            self.put(place, f"{items}/{index:06d}", {"data": "YmxvY2s=", "crc": 1})

    def version(
        self, place: str, version: int, uid: str, *, chunks: int = 1, shared: bool = False, base: int = 0
    ) -> None:
        """Write a finished version without its attempt. `shared` is for checkpoint format 1."""
        self.chunks(place, f"delta/{version:020d}/{uid}", chunks)
        item = f"version/{version:020d}" + ("" if shared else f"/{uid}")
        snapshot = {"version": base, "uid": "u", "snapshot": "s", "chunks": 1, "codec": "lz4"}
        sizes = {"chunks": chunks, "records": 10 * version, "bytes": 100 * chunks, "epoch": 0, "attempt": 1}
        lineage: dict[str, Any] = {"base": snapshot if base else None, "deltas": []}
        self.put(place, item, {"format": 1, "version": version, "uid": uid, "time": TIME, **sizes, **lineage})

    def snapshot(self, place: str, version: int, name: str, *, chunks: int = 1) -> None:
        """Write a finished snapshot."""
        self.chunks(place, f"snapshot/{version:020d}/{name}", chunks)
        sizes = {"chunks": chunks, "records": 10 * version, "bytes": 1000 * chunks, "codec": "lz4"}
        described = {"format": 1, "version": version, "uid": "u", "time": TIME, **sizes}
        self.put(place, f"snapshot/{version:020d}/{name}", described)

    def left(self) -> set[str]:
        """Return all keys of the query in the table."""
        pages = self.client.arrow_table(self.table).scan()
        keys = [
            "/".join(key.values()) if isinstance(key, dict) else key
            for page in pages
            for key in page["key"].to_pylist()
        ]
        return {key for key in keys if key.startswith(self.query)}


def a_query(written: Written) -> None:
    """Write a query with two operators: one with two partitions in format 2, one with two stores in format 1."""
    written.describe({"0": {"default": 2}, "1": {"left-keyToNumValues": 1, "right-keyToNumValues": 1}})
    first = f"{written.query}/0/0/default"
    for version in range(3, 6):
        written.attempt(
            first, version, f"u{version}", *(["lost"] if version == 4 else []), snapshots=["s"] * (version == 4)
        )
        written.version(first, version, f"u{version}", base=4 if version == 5 else 0)
    written.chunks(first, f"delta/{4:020d}/lost", 3)
    written.snapshot(first, 4, "s", chunks=40)
    written.attempt(first, 6, "under-way")
    written.put(first, "floor", {"version": 3})
    second = f"{written.query}/0/1/default"
    written.attempt(second, 1, "u1", snapshots=["unfinished"])
    written.version(second, 1, "u1", chunks=20)
    written.chunks(second, f"snapshot/{1:020d}/unfinished", 16)
    left = f"{written.query}/1/0/left-keyToNumValues"
    for version in (1, 2):
        written.attempt(left, version, "older", "newer")
        written.version(left, version, "newer", shared=True)
        written.chunks(left, f"delta/{version:020d}/older", 1)


@contextmanager
def service(directory: Path) -> Iterator[Client]:
    """Yield a client of a service with a table for each kind of key, and one with an unsuitable key."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.yaml"
    config.write_text(CONFIG)
    with running(directory, config) as started, Client(started.url) as client:
        yield client
