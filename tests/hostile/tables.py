"""A service under measurement with a table in each kind of store, and the records that inputs need in them."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hostile.arrow_inputs import arrow
from hostile.costs import ROCKSDB_BYTES_MAX, TIMES_MAX, Cost, Sent, Watched, watched
from hostile.inputs import CROWD, GONE, OPERATIONS, Input, Table, batches, reads, record, singles
from tableside.core.store import VALUE_BYTES_MAX

REMOTE = ("redis", "postgres", "dynamodb")

SMALL_RECORDS = {"memory": 50_000, "rocksdb": 50_000, "redis": 20_000, "postgres": 20_000, "dynamodb": 2_000}
"""The number of small records in a crowd, and of expired ones, by the kind of store."""

GONE_TTL_S = 1.0

INPUTS: Mapping[str, Input] = {one.name: one for one in (*singles(), *batches(), *arrow(), *reads())}

STORE_INPUTS = (
    *("PUT [1.0, ...]", "PUT one string, escapes", "PATCH $inc, many paths", "GET members, fields"),
    *(
        "PATCH many $addToSet and $set of integers, returned",
        "PATCH $set of text, returned",
        "batch put, keys, [1.0, ...]",
    ),
    *("batch update, one key, returned", "batch update, keys, array of {}", "batch delete, tokens"),
    *("batch get, large records", "batch update, large records, returned, one field", "Arrow put many, [[[]], ...]"),
    *("scan expired", "scan large records, one field", "scan crowd", "splits"),
)
"""The names of the inputs whose cost depends on the store."""


class Tables:
    """The tables of a service under measurement, named like their kinds of store."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._made: dict[tuple[str, str], int] = {}

    def cost(self, table: str, name: str) -> Cost:
        """Make the records that an input needs, send it, and return its cost."""
        one, place = INPUTS[name], table_of(table)
        record_bytes = max((self._size_bytes(place, key) for key in one.needs), default=0)
        store_bytes = ROCKSDB_BYTES_MAX if table == "rocksdb" else 0
        return self.watched.cost(one.make(place), TIMES_MAX * record_bytes + store_bytes)

    def _size_bytes(self, table: Table, key: str) -> int:
        if (table.name, key) not in self._made or key == GONE:
            self._made[table.name, key] = self._make(table, key)
        return self._made[table.name, key]

    def _make(self, table: Table, key: str) -> int:
        if key not in (CROWD, GONE):
            text = record(table, key)
            self.watched.put(table.name, {key: text})
            return len(text)
        numbers = range(SMALL_RECORDS[table.name])
        for first in numbers[::OPERATIONS]:
            records = {f"{key}-{number:08}": b'{"n":1}' for number in numbers[first : first + OPERATIONS]}
            self.watched.put(table.name, records, GONE_TTL_S if key == GONE else -1)
        if key == GONE:
            time.sleep(GONE_TTL_S)
        return 0


def table_of(name: str) -> Table:
    """Return the table in a kind of store."""
    return Table(name, 398_000 if name == "dynamodb" else VALUE_BYTES_MAX)


@contextlib.contextmanager
def tables(directory: Path, addresses: Mapping[str, str]) -> Iterator[Tables]:
    """Run a service with a table for each embedded store, and for the remote ones that have an address."""
    small = {"block_cache_bytes": 8 * 2**20, "row_cache_bytes": 8 * 2**20, "write_buffer_bytes": 16 * 2**20}
    rocksdb = {"kind": "rocksdb", "path": str(directory / "data"), **small}
    stores: dict[str, dict[str, Any]] = {"memory": {"kind": "memory"}, "rocksdb": rocksdb}
    members = {"redis": "url", "postgres": "dsn", "dynamodb": "endpoint_url"}
    for kind, address in addresses.items():
        region = {"region": "eu-west-1"} if kind == "dynamodb" else {}
        stores[kind] = {"kind": kind, members[kind]: address, **region}
    own = {"name": f"hostile-{directory.name}-{time.monotonic_ns()}", "create": True} if addresses else {}
    document = {"stores": stores, "tables": {name: {"store": name, **own} for name in stores}}
    with watched(directory, json.dumps(document)) as running:
        for name in stores:
            running.send(Sent("GET", f"/v1/tables/{name}/records/none"))  # opens the table
        yield Tables(running)
