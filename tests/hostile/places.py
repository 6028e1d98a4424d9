"""Every input, and a service with a table in each kind of store and the records that inputs need in them."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hostile.bounds import Bounds, bounds_of
from hostile.costly import JSON, LARGEST, RETURNED, Input, records, singles
from hostile.costly_arrow import arrow
from hostile.costly_batches import batches
from hostile.costly_reads import heads, pages, scans
from hostile.costs import ROCKSDB_BYTES_MAX, Cost, Sent, Watched, watched
from support.kinds import AWS

EMBEDDED = ("memory", "rocksdb")
REMOTE = ("redis", "postgres", "dynamodb")

CROWD = {"memory": 50_000, "rocksdb": 50_000, "redis": 50_000, "postgres": 50_000, "dynamodb": 2_000}
GONE = {"memory": 50_000, "rocksdb": 50_000, "redis": 10_000, "postgres": 20_000, "dynamodb": 2_000}
"""The number of small records, and of expired ones, by the kind of store."""

GONE_TTL_S = 1.0
BATCH = 10_000


def configuration(addresses: Mapping[str, str], directory: Path) -> dict[str, Any]:
    """Return a configuration with a table for each kind of store. `addresses` is for remote stores."""
    stores: dict[str, dict[str, Any]] = {
        "memory": {"kind": "memory"},
        "rocksdb": {
            "kind": "rocksdb",
            "path": str(directory / "data"),
            "block_cache_bytes": 8 * 2**20,
            "row_cache_bytes": 8 * 2**20,
            "write_buffer_bytes": 16 * 2**20,
        },
    }
    members = {"redis": "url", "postgres": "dsn", "dynamodb": "endpoint_url"}
    stores |= {name: {"kind": name, members[name]: address} for name, address in addresses.items()}
    if "dynamodb" in stores:
        stores["dynamodb"]["region"] = "eu-west-1"
    own = {} if not addresses else {"name": f"hostile-{directory.name}-{time.monotonic_ns()}", "create": True}
    return {"stores": stores, "tables": {name: {"store": name, **own} for name in stores}}


@contextlib.contextmanager
def service(directory: Path, addresses: Mapping[str, str]) -> Iterator["Places"]:
    """Run a watched service with a table for each embedded store, and for the remote ones that have an address."""
    config = configuration(addresses, directory)
    with watched(directory, json.dumps(config), environment=AWS) as running:
        yield Places(running, {name: _bounds(running, name) for name in config["tables"]})


def _bounds(running: Watched, table: str) -> Bounds:
    running.send(Sent("GET", f"/v1/tables/{table}/records/none"))  # opens the table
    return bounds_of(running.get_json(f"/v1/tables/{table}"))


@dataclass
class Places:
    """The tables of a watched service, with their limits by name."""

    watched: Watched
    bounds: Mapping[str, Bounds]
    _made: dict[tuple[str, str], int] = field(default_factory=dict)
    _inputs: dict[str, dict[str, Input]] = field(default_factory=dict)

    def input(self, table: str, name: str) -> Input:
        """Return the input with this name for a table."""
        bounds = self.bounds[table]
        if table not in self._inputs:
            self._inputs[table] = {one.name: one for one in (*every(bounds), *of_largest(bounds))}
        return self._inputs[table][name]

    def cost(self, table: str, one: Input) -> Cost:
        """Make the records that an input needs, send it, and return its cost."""
        bounds = self.bounds[table]
        record_bytes = max((self._size_bytes(bounds, key) for key in one.needs), default=0)
        store_bytes = ROCKSDB_BYTES_MAX if table == "rocksdb" else 0
        return self.watched.cost(one.make(), record_bytes, bounds.response_bytes + store_bytes)

    def _size_bytes(self, bounds: Bounds, key: str) -> int:
        if (bounds.table, key) not in self._made or key == "gone":
            self._made[bounds.table, key] = self._make(bounds, key)
        return self._made[bounds.table, key]

    def _make(self, bounds: Bounds, key: str) -> int:
        if key == "crowd":
            return self._put_many(bounds.table, "crowd", CROWD[bounds.table], None)
        if key == "gone":
            size_bytes = self._put_many(bounds.table, "gone", GONE[bounds.table], GONE_TTL_S)
            time.sleep(GONE_TTL_S)
            return size_bytes
        text = records(bounds)[key](bounds.record_bytes)
        done = self.watched.send(Sent("PUT", f"/v1/tables/{bounds.table}/records/{quote(key)}", text, _PATIENT))
        if done.status != 204:
            raise RuntimeError(f"the record {key} cannot be made in {bounds.table}: {done}")
        return len(text)

    def _put_many(self, table: str, prefix: str, count: int, ttl_s: float | None) -> int:
        for first in range(0, count, BATCH):
            self._put(table, [f"{prefix}-{number:08d}" for number in range(first, min(count, first + BATCH))], ttl_s)
        return 0

    def _put(self, table: str, keys: Sequence[str], ttl_s: float | None) -> None:
        more = {} if ttl_s is None else {"ttl_s": ttl_s}
        operations = [{"op": "put", "key": key, "value": {"n": 1}, **more} for key in keys]
        body = json.dumps({"operations": operations}).encode()
        done = self.watched.send(Sent("POST", f"/v1/tables/{table}/batch", body, _PATIENT))
        if done.status != 200 or done.codes:
            raise RuntimeError(f"records cannot be made in {table}: {done}")


_PATIENT = {**JSON, "Prefer": "wait=100"}


def every(bounds: Bounds) -> Iterator[Input]:
    """Return every input."""
    for make in (singles, batches, arrow, scans, heads, pages):
        yield from make(bounds)


def of_store(bounds: Bounds) -> Iterator[Input]:
    """Return the inputs whose cost may differ between stores, without inputs that never reach a store."""
    for make in (singles, batches, scans):
        yield from (one for one in make(bounds) if not one.name.startswith(_REFUSED))


_REFUSED = ("batch of too", "batch without", "PATCH $push, $each", "PATCH array, ")


def of_largest(bounds: Bounds) -> Iterator[Input]:
    """Return the inputs for records of nearly the maximum size."""
    keys = tuple(f"largest-{number}" for number in range(LARGEST))
    record = f"/v1/tables/{bounds.table}/records/{keys[0]}"
    update = b'{"update":{"$inc":{"n":1}}}'
    yield Input("GET largest", partial(Sent, "GET", record, b"", JSON), keys[:1])
    yield Input("PATCH largest", partial(Sent, "PATCH", record, update, JSON), keys[:1])
    yield Input("PATCH largest, returned", partial(Sent, "PATCH", record, update, RETURNED), keys[:1])
    for name, operation in {
        "get": b'{"op":"get","key":"%b"}',
        "update": b'{"op":"update","key":"%b","update":{"$inc":{"n":1}}}',
        "update, returned": b'{"op":"update","key":"%b","update":{"$inc":{"n":1}},"return":true}',
    }.items():
        body = b'{"operations":[%b]}' % b",".join(operation % key.encode() for key in keys)
        batch = partial(Sent, "POST", f"/v1/tables/{bounds.table}/batch", body, JSON)
        yield Input(f"batch {name}, largest", batch, keys)
