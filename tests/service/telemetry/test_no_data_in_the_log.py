"""No log line contains callers' data or credentials, at every log level and after every failure."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.telemetry.lines import logged
from support.running import running
from tableside.app import create_app
from tableside.catalog.control_table import CONTROL
from tableside.core.operations import Operation
from tableside.settings import validate
from tableside.stores.memory import MemoryStore

pytestmark = pytest.mark.server

ALL = {"level": "debug", "requests": 1, "slow_s": 0.001}

CONFIG = """
stores:
  local: {kind: memory}
  redis: {kind: redis, url: "%s"}
  no_redis: {kind: redis, url: "redis://user:marked-password@127.0.0.1:1"}
  refused: {kind: redis, url: "%s", password: marked-password}
  no_postgres: {kind: postgres, dsn: "postgresql://user:marked-password@127.0.0.1:1/db"}
  no_dynamodb: {kind: dynamodb, region: eu-west-1, endpoint_url: "http://127.0.0.1:1"}
tables:
  local: {store: local}
  redis: {store: redis, batch: {operations_max: 10}, cache: {records_max: 10, ttl_s: 1}}
  no_redis: {store: no_redis, deadline_s: 0.3}
  refused: {store: refused, deadline_s: 0.3}
  no_postgres: {store: no_postgres, deadline_s: 0.3}
  no_dynamodb: {store: no_dynamodb, deadline_s: 0.3}
logs: {level: debug, requests: 1, slow_s: 0.001}
"""
TABLES = ("local", "redis", "no_redis", "refused", "no_postgres", "no_dynamodb")

HEADERS = {
    "authorization": "Bearer marked-bearer",
    "tableside-token": "marked-writer/1",
    "if-match": '"marked-etag"',
    "x-other": "marked-header",
}


def requests(table: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return valid and invalid requests of every kind, with a marker in all data of the caller."""
    record = f"/v1/tables/{table}/records/marked-key"
    value = {"marked-member": "marked-value"}
    operations = [
        {"op": "put", "key": "marked-key", "value": value},
        {"op": "update", "key": "marked-key", "update": {"marked-member": "marked-value"}, "default": value},
        {"op": "get", "key": {"marked": "marked-key"}},
        {"op": "marked", "key": "marked-key"},
    ]
    return [
        ("PUT", record, {"json": value}),
        ("PUT", record, {"json": value, "headers": {"if-none-match": "*"}}),
        ("PUT", record, {"content": b"{marked-value"}),
        ("PATCH", record, {"json": {"update": {"$inc": {"marked-member": "marked-value"}}}}),
        ("GET", record, {"params": {"fields": "marked-member"}}),
        ("DELETE", record, {"headers": HEADERS}),
        ("GET", f"/v1/tables/{table}/records", {"params": {"prefix": "marked-key", "cursor": "marked-cursor"}}),
        ("GET", f"/v1/tables/{table}/records", {}),
        ("POST", f"/v1/tables/{table}/batch", {"json": {"operations": operations}}),
        ("POST", f"/v1/tables/{table}/batch", {"content": b"marked-value"}),
        ("GET", f"/v1/tables/{table}/marked-path/marked", {"params": {"marked": "marked"}}),
    ]


def test_log_lines_contain_no_data_with_any_failure_of_a_store(redis_url: str, tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text(CONFIG % (redis_url, redis_url))
    keys = {"AWS_ACCESS_KEY_ID": "marked-id", "AWS_SECRET_ACCESS_KEY": "marked-secret"}
    with (
        running(tmp_path, config, environment=keys, ready=False) as service,
        httpx.Client(base_url=service.url, timeout=30) as client,
    ):
        statuses: list[int] = []
        for table in TABLES:
            for method, path, arguments in requests(table):
                statuses.append(client.request(method, path, **arguments).status_code)
                client.get("/livez")
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert all({"timestamp", "level", "logger", "event"} <= line.keys() for line in lines)
    left_out = sum(line.get("left_out", 0) for line in lines if line["event"].endswith(" request"))
    assert sum("status" in line for line in lines) + left_out == len(statuses)
    assert {200, 400, 404, 422, 503} <= {*statuses}
    assert {"request", "slow request", "failed request"} <= {line["event"] for line in lines}
    assert "marked" not in service.log.read_text().lower()


async def send_all(table: dict[str, Any]) -> list[int]:
    """Send all requests to the application in this process, on a memory store."""
    data = {"stores": {"local": {"kind": "memory"}}, "logs": ALL, "tables": {"t": {"store": "local", **table}}}
    app = create_app(validate(data))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tables") as client:
            client.headers["x-request-id"] = "request-7"
            return [(await client.request(method, path, **given)).status_code for method, path, given in requests("t")]


def failing(how: Callable[[Sequence[Operation]], Any]) -> Callable[..., Any]:
    """Return a method for stores of which only that of the control table works."""
    works = MemoryStore.apply

    async def apply(self: MemoryStore, operations: Sequence[Operation], *budget: Any) -> Any:
        return await works(self, operations, *budget) if self.spec.name == CONTROL else how(operations)

    return apply


def raise_with_all(operations: Sequence[Operation]) -> Any:
    try:
        raise KeyError(f"DETAIL: Key (id)=({operations})")
    except KeyError as error:
        error.add_note(f"{operations}")
        raise ValueError(f"{operations}") from error


POLICIES: list[dict[str, Any]] = [
    {},
    {"batch": {"operations_max": 10}},
    {"batch": {"operations_max": 10}, "cache": {"records_max": 5, "ttl_s": 1}},
    {"read": {"attempts_max": 2, "timeout_s": 1}, "write": {"attempts_max": 2, "timeout_s": 1}, "concurrency_max": 1},
]


@pytest.mark.parametrize("how", [raise_with_all, lambda operations: [], lambda operations: ["marked-value"] * 9])
@pytest.mark.parametrize("table", POLICIES)
async def test_an_exception_of_a_store_with_all_its_data_is_logged_without_data(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], how: Callable[[Sequence[Operation]], Any]
) -> None:
    monkeypatch.setattr(MemoryStore, "apply", failing(how))
    with logged(**ALL) as lines:
        statuses = await send_all(table)
    assert 500 in statuses
    assert sum("status" in line for line in lines.all) == len(statuses)
    assert "marked" not in lines.text.lower()
    if how is raise_with_all:
        told = [line["exception"] for line in lines.all if "exception" in line]
        assert any("in raise_with_all" in text and text.endswith("ValueError") for text in told)
        assert table or "request GET request-7 failed" in lines.events
