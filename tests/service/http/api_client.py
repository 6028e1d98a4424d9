"""A client for the HTTP tests, and checks that apply to every error response."""

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from tableside.app import create_app
from tableside.settings import validate

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
MERGE_PATCH = "application/merge-patch+json"
PROBLEM = "application/problem+json"

STORES = {
    "memory": "{kind: memory}",
    "rocksdb": "{kind: rocksdb, path: ./data}",
    "partitioned": "{kind: partitioned, partitions: [one, other]}\n  one: {kind: memory}\n"
    "  other: {kind: rocksdb, path: ./data}",
}

MEMORY = {"stores": {"s": {"kind": "memory"}}}

ON_EVERY_STORE = pytest.mark.parametrize(
    "api",
    [pytest.param(name, marks=[pytest.mark.daily] if name == "rocksdb" else []) for name in STORES],
    indirect=True,
)
"""For tests of stores. Requests that the service rejects before it calls a store need only one of them."""

Result: TypeAlias = dict[str, Any]

_numbers = itertools.count(1)


def fresh(word: str = "key") -> str:
    """Return a key or a table name that no other test uses."""
    return f"{word}-{next(_numbers):05}"


def path_of(table: str, *parts: object) -> str:
    """Return the path of a record."""
    return f"/v1/tables/{table}/records/" + "/".join(quote(str(part), safe="") for part in parts)


class ApiClient:
    """A client of one service. On a partitioned store it compares each result with the result of the partition."""

    def __init__(self, client: httpx.Client, *, partitioned: bool = False) -> None:
        self.client = client
        self.partitioned = partitioned

    def in_order(self, keys: Sequence[Any]) -> list[Any]:
        """Return scanned keys: unchanged if the store is ordered, else sorted."""
        return sorted(keys) if self.partitioned else list(keys)

    def get(self, table: str, *key: object, **options: Any) -> httpx.Response:
        """Get a record."""
        return self.client.get(path_of(table, *key), **options)

    def value(self, table: str, *key: object) -> Any:
        """Return the value of a record, which must be present."""
        response = self.get(table, *key)
        assert response.status_code == 200, response.text
        return response.json()

    def put(self, table: str, key: object, value: object, **options: Any) -> httpx.Response:
        """Put a record."""
        return self.client.put(path_of(table, *_parts(key)), content=json.dumps(value), **options)

    def update(self, table: str, key: object, body: object, **options: Any) -> httpx.Response:
        """Send an update with its default and ttl_s, as application/json."""
        headers = {"Content-Type": JSON, **options.pop("headers", {})}
        return self.client.patch(path_of(table, *_parts(key)), content=json.dumps(body), headers=headers, **options)

    def merge(self, table: str, key: object, patch: object, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a merge patch."""
        given = {"Content-Type": MERGE_PATCH, **(headers or {})}
        return self.client.patch(path_of(table, *_parts(key)), content=json.dumps(patch), headers=given)

    def delete(self, table: str, key: object, **options: Any) -> httpx.Response:
        """Delete a record."""
        return self.client.delete(path_of(table, *_parts(key)), **options)

    def scan(self, table: str, **query: Any) -> httpx.Response:
        """Request one page of a scan."""
        return self.client.get(f"/v1/tables/{table}/records", params=query)

    def walk(self, table: str, **query: Any) -> list[Result]:
        """Return the records of every page."""
        records: list[Result] = []
        while True:
            page = self.scan(table, **query).json()
            records += page["records"]
            if page["cursor"] is None:
                return records
            query["cursor"] = page["cursor"]

    def post(self, table: str, content: bytes, media: str = JSON, **options: Any) -> httpx.Response:
        """Post a batch without changes."""
        headers = {"Content-Type": media, **options.pop("headers", {})}
        return self.client.post(f"/v1/tables/{table}/batch", content=content, headers=headers, **options)

    def batch(self, table: str, *operations: object, headers: Mapping[str, str] | None = None) -> list[Result]:
        """Return the results of a batch sent as JSON."""
        response = self.client.post(f"/v1/tables/{table}/batch", json={"operations": list(operations)}, headers=headers)
        assert response.status_code == 200, response.text
        found: list[Result] = response.json()["results"]
        return [with_merged_partition(result) for result in found] if self.partitioned else found

    def rows(self, table: str, columns: Mapping[str, Any], **query: Any) -> list[Result]:
        """Return the rows of the response to a batch sent as Arrow."""
        response = self.post(table, stream(columns), ARROW, params=query)
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == ARROW
        found: list[Result] = read(response.content).to_pylist()
        return [with_merged_partition(row) for row in found] if self.partitioned else found


@asynccontextmanager
async def application(
    settings: Mapping[str, Any], *, local: bool = False, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Run an application in this process. Its client has an address."""
    app = create_app(validate({**MEMORY, **settings}), local=local)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 1000))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tableside") as client,
    ):
        yield app, client


def _parts(key: object) -> Sequence[object]:
    return key if isinstance(key, tuple) else (key,)


def with_merged_partition(result: Result) -> Result:
    """Return a result as that of an ordinary table, after checking that its one partition reports the same."""
    own = dict(result)
    assert not own.pop("dropped", False)
    for part in own.pop("partitions", None) or []:
        index = part.pop("partition")
        assert index in (0, 1)
        assert part == {name: member for name, member in own.items() if name in part or name != "expires_at"}
    return own


def stream(columns: Mapping[str, Any], compression: str | None = None) -> bytes:
    """Return columns as an Arrow stream."""
    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(body: bytes) -> Any:
    """Return the table in an Arrow stream."""
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()


def statuses(results: Sequence[Result]) -> list[int]:
    """Return the status of each result."""
    return [result["status"] for result in results]


def check_problem(problem: Mapping[str, Any], status: int, code: str) -> None:
    """Check the members that every problem has."""
    assert problem["code"] == code
    assert problem["status"] == status
    assert problem["type"].endswith(code)
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem["retriable"], bool)
    assert problem["applied"] in ("no", "unknown")
    required = {"type", "title", "status", "detail", "code", "retriable", "applied"}
    assert required <= problem.keys() <= {*required, "retry_after_s", "stores", "partitions"}


def check_refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that a response is a problem with this status and code, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == PROBLEM
    assert response.headers["X-Request-Id"]
    problem: dict[str, Any] = response.json()
    check_problem(problem, status, code)
    return problem
