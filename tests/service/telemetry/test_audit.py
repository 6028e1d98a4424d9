"""The audit log: which requests have a line, its members, and the limit that a flood of rejected requests reaches."""

import json
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from documentation.blocks import every_block
from service.telemetry.lines import Lines, logged
from support.running import running
from support.waiting import until
from tableside.app import create_app
from tableside.settings import validate
from tableside.telemetry.logs import LINES_PER_S_MAX

CONFIG = """
stores: {local: {kind: memory}}
auto_create: true
tables: {t: {store: local}, replaced: {store: local, generations: true}}
hosts: [tables.example]
trusted_proxies: [127.0.0.0/8]
logs: {level: error, requests: 0, audit: writes}
auth:
  tokens:
    - {name: owner, sha256: "%s", read: ["*"], write: ["*"]}
    - {name: reader, sha256: "%s", read: [t]}
"""
CONFIG %= sha256(b"secret-owner").hexdigest(), sha256(b"secret-reader").hexdigest()

OWNER, READER, UNKNOWN = ({"authorization": f"Bearer secret-{name}"} for name in ("owner", "reader", "unknown"))
PAGE_OF_LOGS = "docs/observability.md"

T, KEY = "/v1/tables/t", "marked-key"
RECORD, RECORD_ROUTE = f"{T}/records/{KEY}", "/v1/tables/{table}/records/{key:path}"
GENERATIONS = "/v1/tables/replaced/generations"

PUT = {"op": "put", "key": KEY, "value": {"n": "marked-value"}}
GET = {"op": "get", "key": KEY}
FORGET = {"op": "delete", "key": KEY, "forget": True}
INVALID = {"op": "marked", "key": KEY}

MEMBERS = ("event", "client", "caller", "table", "operation", "outcome", "operations", "failed", "detail")
REJECTED, DENIED, ADMINISTRATION, WRITE = "token rejected", "operation denied", "administration", "write"


def line(event: str, operation: str, outcome: str = "ok", **others: Any) -> dict[str, Any]:
    """Return an expected line, of a request by the owner for the table t with one operation."""
    usual = {"caller": "owner", "table": "t", "operations": 1, "failed": 0, "detail": None}
    return {"event": event, "operation": operation, "outcome": outcome, "client": "203.0.113.9", **usual, **others}


def rejected(operation: str, reason: str) -> dict[str, Any]:
    return line(REJECTED, operation, "unauthenticated", caller=None, table=None, operations=0, detail=reason)


def denied(operation: str, **others: Any) -> dict[str, Any]:
    return line(DENIED, operation, "forbidden", **{"caller": "reader", **others})


def audited(log: Path) -> list[dict[str, Any]]:
    """Return the lines of the audit."""
    lines = map(json.loads, log.read_text().splitlines())
    return [one for one in lines if one["logger"] == "tableside.audit"]


# Headers, method, path, body, and the expected lines. Later requests use the results of earlier ones.
REQUESTS: list[tuple[dict[str, str], str, str, Any, list[dict[str, Any]]]] = [
    ({}, "GET", RECORD, None, [rejected("GET other", "missing")]),
    (UNKNOWN, "PUT", RECORD, {}, [rejected("PUT other", "unknown")]),
    ({}, "GET", "/livez", None, []),
    (READER, "GET", RECORD, None, []),
    (READER, "PUT", RECORD, {}, [denied(f"PUT {RECORD_ROUTE}")]),
    (READER, "GET", "/v1/tables/u", None, [denied("GET /v1/tables/{table}", table="u", operations=0)]),
    (READER, "DELETE", f"{T}/records?all=true", None, [denied("DELETE /v1/tables/{table}/records", operations=0)]),
    (READER, "GET", "/console/tables/u", None, [denied("GET /console/tables/{table}", table="u", operations=0)]),
    (OWNER | {"host": "evil.example"}, "GET", RECORD, None, [denied(
        "GET other", caller=None, table=None, operations=0
    )]),
    (READER, "POST", f"{T}/batch", [GET, PUT, PUT], [denied(
        "POST /v1/tables/{table}/batch", operations=2, failed=2
    )]),
    (OWNER, "POST", f"{T}/batch", [PUT, GET, INVALID], [line(
        WRITE, "POST /v1/tables/{table}/batch", "partial", operations=3, failed=1
    )]),
    (OWNER, "POST", f"{T}/batch", [GET, GET], []),
    (OWNER, "GET", f"{T}/records/absent", None, []),
    (OWNER, "PUT", RECORD, {"n": "marked-value"}, [line(WRITE, f"PUT {RECORD_ROUTE}")]),
    (OWNER | {"if-match": '"marked"'}, "PUT", RECORD, {}, [line(
        WRITE, f"PUT {RECORD_ROUTE}", "precondition_failed"
    )]),
    (OWNER, "PUT", "/v1/tables/made/records/a", {}, [line(
        ADMINISTRATION, f"PUT {RECORD_ROUTE}", table="made", detail="new table"
    )]),
    (OWNER, "PUT", "/v1/tables/made/records/a", {}, [line(WRITE, f"PUT {RECORD_ROUTE}", table="made")]),
    (OWNER, "DELETE", RECORD, None, [line(WRITE, f"DELETE {RECORD_ROUTE}")]),
    (OWNER, "DELETE", f"{RECORD}?forget=true", None, [line(
        ADMINISTRATION, f"DELETE {RECORD_ROUTE}", detail="forget"
    )]),
    (OWNER, "POST", f"{T}/batch", [FORGET], [line(
        ADMINISTRATION, "POST /v1/tables/{table}/batch", detail="forget"
    )]),
    (OWNER, "DELETE", f"{T}/records?all=true", None, [line(
        ADMINISTRATION, "DELETE /v1/tables/{table}/records", operations=0
    )]),
    (OWNER, "POST", GENERATIONS, {"note": "marked"}, [line(
        ADMINISTRATION, "POST /v1/tables/{table}/generations", table="replaced", operations=0, detail="generation 2"
    )]),
    (OWNER, "POST", f"{GENERATIONS}/2/activate", None, [line(
        ADMINISTRATION,
        "POST /v1/tables/{table}/generations/{generation}/activate",
        table="replaced", operations=1, detail="generation 2",
    )]),
    (OWNER, "DELETE", f"{GENERATIONS}/2", None, [line(
        ADMINISTRATION,
        "DELETE /v1/tables/{table}/generations/{generation}",
        "precondition_failed", table="replaced", operations=1, detail="generation 2",
    )]),
]  # fmt: skip


def send(client: httpx.Client, headers: Mapping[str, str], method: str, path: str, body: Any) -> httpx.Response:
    document = {"operations": body} if isinstance(body, list) else body
    return client.request(method, path, headers=headers, json=document)


@pytest.mark.server
def test_events_have_lines_of_one_shape_without_data(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text(CONFIG)
    sender = {"x-forwarded-for": "203.0.113.9"}
    with running(tmp_path, config) as service, httpx.Client(base_url=service.url, headers=sender, timeout=60) as client:
        for number, (headers, *request, _) in enumerate(REQUESTS):
            send(client, {**headers, "x-request-id": str(number)}, *request)
    lines = audited(service.log)
    for number, (_, method, path, _, expected) in enumerate(REQUESTS):
        found = [one for one in lines if one["request_id"] == str(number)]
        assert [{name: one[name] for name in MEMBERS} for one in found] == expected, (number, method, path)
    [example] = [json.loads(one.text) for one in every_block() if (one.page, one.language) == (PAGE_OF_LOGS, "json")]
    assert {(*one,) for one in lines} == {(*example,)}
    assert {(one["event"], one["level"]) for one in lines} == {
        (REJECTED, "warning"), (DENIED, "warning"), (ADMINISTRATION, "info"), (WRITE, "info")
    }  # fmt: skip
    text = service.log.read_text()
    assert not any(word in text for word in ("marked", "secret", sha256(b"secret-owner").hexdigest()))


PROXIES = ["10.0.0.0/8", "2001:db8::/32"]


@pytest.mark.parametrize(
    ("address", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.9, 10.9.9.9", "203.0.113.9"),  # a client invents the first
        ("10.0.0.1", "203.0.113.9:4321", "203.0.113.9"),
        ("10.0.0.1", "[2001:DB9::1]:4321", "2001:db9::1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9, unknown", "10.0.0.1"),
        ("10.0.0.1", '203.0.113.9, "}\\n{"', "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9" + ", 10.0.0.2" * 100_000, "10.0.0.2"),  # only the last hops are considered
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),
    ],
)
@pytest.mark.parametrize("proxies", [[], PROXIES], ids=["without", "with"])
async def test_only_trusted_proxies_name_the_client(
    proxies: list[str], address: str, forwarded: str, client: str
) -> None:
    with logged() as lines:
        await ask(lines, {"trusted_proxies": proxies}, "/v1/tables", {"x-forwarded-for": forwarded}, address)
    [line] = [line for line in lines.all if line["logger"] == "tableside.audit"]
    assert (line["event"], line["client"]) == (REJECTED, client if proxies else address)


async def ask(lines: Lines, settings: dict[str, Any], path: str, headers: dict[str, str], address: str) -> None:
    """Send a request from an address to an application with these settings and one token."""
    token = {"name": "reader", "sha256": sha256(b"secret-reader").hexdigest()}
    stores = {"stores": {"local": {"kind": "memory"}}, "auth": {"tokens": [token]}}
    app = create_app(validate(stores | settings))
    async with app.router.lifespan_context(app):
        lines.stream.truncate(0)
        lines.stream.seek(0)
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            await client.get(path)


@pytest.mark.parametrize(("audit", "count"), [("none", 0), ("security", 1), ("writes", 1)])
@pytest.mark.parametrize("format_", ["json", "console"])
async def test_a_hostile_name_is_one_short_line(audit: str, count: int, format_: str) -> None:
    path = "/console/tables/" + "a%0A%7B%22event%22:1%7D%1b" + "b" * 3000
    with logged(format=format_) as lines:
        await ask(lines, {"logs": {"audit": audit, "format": format_, "requests": 0}}, path, READER, "192.0.2.1")
    assert lines.text.count("\n") == count
    assert len(lines.text) < 600
    assert lines.text.isascii()
    assert "\x1b" not in lines.text


@pytest.mark.server
@pytest.mark.parametrize(
    ("event", "headers", "method", "path", "body"),
    [
        (REJECTED, UNKNOWN, "GET", RECORD, None),
        (DENIED, READER, "GET", "/console/tables/u", None),
        (DENIED, READER, "POST", f"{T}/batch", [PUT]),
    ],
)
def test_a_flood_has_few_lines_and_an_exact_count(
    tmp_path: Path, event: str, headers: dict[str, str], method: str, path: str, body: Any
) -> None:
    config, count = tmp_path / "tableside.yaml", 1000
    config.write_text(CONFIG)
    with running(tmp_path, config) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        began = time.monotonic()
        for _ in range(count):
            assert send(client, headers, method, path, body).status_code in (200, 401, 403)
        seconds = time.monotonic() - began
        assert send(client, OWNER, "DELETE", f"{T}/records?all=true", None).status_code == 200
        assert f'tableside_audit_events_total{{event="{event}"}} {count}.0' in client.get("/metrics").text
    lines = audited(service.log)
    logged_count = sum(one["event"] == event for one in lines)
    left_out = [one["left_out"] for one in lines if one["event"] == f"left out of the log: {event}"]
    assert logged_count + sum(left_out) == count
    assert logged_count <= LINES_PER_S_MAX * (seconds + 2)
    assert ADMINISTRATION in [one["event"] for one in lines]


@pytest.mark.server
def test_changes_of_the_configuration_are_named_also_those_of_the_audit(tmp_path: Path) -> None:
    config, text = tmp_path / "tableside.yaml", CONFIG
    config.write_text(text)
    changes = [
        ((sha256(b"secret-reader").hexdigest(), "0" * 64), "auth.tokens"),
        (("audit: writes", "audit: none"), "logs.audit"),
        (("hosts: [tables.example]", "hosts: []"), None),
    ]
    with running(tmp_path, config) as service, httpx.Client(base_url=service.url) as client:
        for number, (replaced, _) in enumerate(changes, 1):
            text = text.replace(*replaced)
            config.write_text(text)
            applied = f'tableside_settings_reloads_total{{outcome="applied"}} {number}.0'
            until(lambda applied=applied: applied in client.get("/metrics").text)  # type: ignore[misc]
    lines = [one for one in audited(service.log) if one["event"] == "configuration changed"]
    assert [(one["detail"], one["outcome"]) for one in lines] == [("auth.tokens", "ok"), ("logs.audit", "ok")]
    assert "0" * 64 not in service.log.read_text()
