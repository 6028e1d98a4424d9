"""Bearer tokens over HTTP: authentication, permissions, and information that no response contains."""

import json
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.http.api_client import ARROW, ApiClient, check_problem, check_refused, fresh, statuses
from support.running import Service, running
from support.served import BATCH, RECORD, connected, served
from support.waiting import until
from tableside.telemetry import REQUEST_LOGGER

pytestmark = pytest.mark.server

NAMES = ("all", "reader", "writer", "none", "operator")
SECRETS = {name: f"tableside_{name}-s3cr3t.Of~1+2/3=" for name in NAMES}
DIGESTS = {name: sha256(secret.encode()).hexdigest() for name, secret in SECRETS.items()}
TOKENS: list[dict[str, Any]] = [
    {"name": "all", "sha256": DIGESTS["all"], "read": ["*"], "write": ["*"]},
    {"name": "reader", "sha256": DIGESTS["reader"], "read": ["t*"]},
    {"name": "writer", "sha256": DIGESTS["writer"].upper(), "write": ["t*"]},
    {"name": "none", "sha256": DIGESTS["none"], "read": ["elsewhere"], "write": ["Table-*"]},
    {"name": "operator", "sha256": DIGESTS["operator"], "admin": True},
]

PUBLIC = ("/livez", "/readyz", "/openapi.json", "/docs", "/static-offline-docs/swagger-ui.css")


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRETS[name]}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with its tokens in a separate file."""
    directory: Path = tmp_path_factory.mktemp("guarded")
    lines = [f"- {token}" for token in TOKENS]  # such a repr is valid YAML
    (directory / "tokens.yaml").write_text("\n".join(lines).replace("True", "true"))
    config = directory / "tableside.yaml"
    config.write_text(
        "stores: {local: {kind: memory}}\nauto_create: true\ntables: {t: {store: local}}\n"
        f"auth: {{tokens_file: {directory / 'tokens.yaml'}, metrics: admin}}\nlogs: {{level: debug, requests: 1}}\n"
    )
    with running(directory, config) as started:
        yield started


@pytest.fixture
def client(guarded: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded.url, timeout=30) as client:
        yield client


@pytest.fixture
def owner(guarded: Service) -> Iterator[ApiClient]:
    """A client whose token has all permissions on tables."""
    with httpx.Client(base_url=guarded.url, timeout=30, headers=bearer("all")) as client:
        yield ApiClient(client)


# Authentication


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "POST", "OPTIONS"])
def test_every_route_except_public_ones_requires_a_token(client: httpx.Client, method: str) -> None:
    for path in (
        *("/v1/tables", "/v1/tables/t", "/v1/tables/t/records/a", "/v1/tables/t/batch", "/v1/tables/t/records"),
        *("/v1/tables/t/splits", "/metrics", "/nowhere", "/static-offline-docs", "/livez/", "//livez"),
    ):
        url = str(client.base_url).rstrip("/") + path  # httpx reads the path `//livez` alone as a host name
        response = client.request(method, url, content=b"{}" if method != "GET" else None)
        problem = check_refused(response, 401, "unauthenticated")
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert [problem["retriable"], problem["applied"]] == [False, "no"]


ALL = SECRETS["all"]
UNKNOWN = [
    *([], [""], ["Bearer"], [ALL], ["Bearer tableside_unknown"], [f"Bearer {ALL}x"], [f"Bearer {ALL[:-1]}"]),
    *([f"Bearer {ALL.upper()}"], [f"Bearer {ALL} x"], [f"Bearer {ALL}, Bearer {ALL}"], [f"Bearer {ALL}", "Bearer x"]),
    *([f"Bearer {ALL}"] * 2, [f"Basic {ALL}"], [f"Bearer\t{ALL}"], [f"Bearer {DIGESTS['all']}"]),
    *(["Bearer \xff\xfe"], ["Bearer " + "x" * 10_000]),
]


@pytest.mark.parametrize("given", UNKNOWN, ids=range(len(UNKNOWN)))
def test_missing_malformed_and_unknown_tokens_are_answered_alike(client: httpx.Client, given: list[str]) -> None:
    expected = client.get("/v1/tables/t/records/a")
    headers = [(b"Authorization", value.encode("latin-1")) for value in given]
    response = client.get("/v1/tables/t/records/a", headers=headers)
    check_refused(response, 401, "unauthenticated")
    assert response.content == expected.content
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_only_the_console_accepts_a_token_as_a_password(client: httpx.Client) -> None:
    refused = client.get("/console")
    check_refused(refused, 401, "unauthenticated")
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    basic = httpx.BasicAuth("anybody", SECRETS["all"])
    for path in ("/console", "/console/tables/t"):
        assert client.get(path, auth=basic).status_code == 200, path
    assert client.get("/console", headers=bearer("all")).status_code == 200
    assert client.get("/console", auth=httpx.BasicAuth("all", "unknown")).status_code == 401
    for path in ("/v1/tables", "/consoles"):
        assert client.get(path, auth=basic).status_code == 401, path
    garbage = {"Authorization": "Basic ====="}
    assert client.get("/console", headers=garbage).status_code == 401


@pytest.mark.parametrize("query", ["access_token", "token", "authorization"])
def test_a_token_in_the_query_is_ignored(client: httpx.Client, query: str) -> None:
    check_refused(client.get("/v1/tables", params={query: SECRETS["all"]}), 401, "unauthenticated")
    check_refused(client.get("/v1/tables", headers={"Cookie": f"{query}={SECRETS['all']}"}), 401, "unauthenticated")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_may_be_in_any_case(client: httpx.Client, scheme: str) -> None:
    response = client.get("/v1/tables/t", headers={"Authorization": f"{scheme} {SECRETS['all']}"})
    assert response.status_code == 200


@pytest.mark.parametrize("path", PUBLIC)
def test_probes_and_documentation_ignore_tokens(client: httpx.Client, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer unknown"}, bearer("none")):
        assert client.get(path, headers=headers).status_code == 200
    assert client.get("/").headers["Location"] == "/console"


def test_the_openapi_document_states_which_routes_require_a_token(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operations = [(path, one) for path, item in document["paths"].items() for one in item.values() if "summary" in one]
    public = {path for path, one in operations if one.get("security") == []}
    assert public == {path for path in PUBLIC if not path.startswith("/static")}
    for path, one in operations:
        assert ("401" in one["responses"]) == (path not in public), path
        assert client.get(path.format(table="t", key="a", generation=1)).status_code == (200 if path in public else 401)


def test_metrics_may_be_for_admins_only(client: httpx.Client) -> None:
    check_refused(client.get("/metrics"), 401, "unauthenticated")
    for name in ("all", "reader", "none"):
        check_refused(client.get("/metrics", headers=bearer(name)), 403, "forbidden")
    assert client.get("/metrics", headers=bearer("operator")).status_code == 200
    assert client.head("/metrics", headers=bearer("all")).status_code == 403


async def test_metrics_are_public_unless_the_configuration_restricts_them() -> None:
    async with served(auth={"tokens": TOKENS}, drain_s=0) as service, connected(service, 1) as [caller]:
        assert (await caller.ask("GET", "/metrics")).status == 200


# Permissions

RETURNED = {"Prefer": "return=representation"}
REQUESTS: list[tuple[str, str, dict[str, str], bytes | None, set[str]]] = [
    ("GET", RECORD, {}, None, {"reader"}),
    ("HEAD", RECORD, {}, None, {"reader"}),
    ("GET", "/v1/tables/t/records", {}, None, {"reader"}),
    ("GET", "/v1/tables/t/records", {"Accept": ARROW}, None, {"reader"}),
    ("GET", "/v1/tables/t/splits", {}, None, {"reader"}),
    ("GET", "/v1/tables/t", {}, None, {"reader", "writer"}),
    ("PUT", RECORD, {}, b'{"n":1}', {"writer"}),
    ("PUT", RECORD, RETURNED, b'{"n":1}', set()),
    ("PATCH", RECORD, {"Content-Type": "application/merge-patch+json"}, b'{"n":2}', {"writer"}),
    ("PATCH", RECORD, {"Content-Type": "application/json"}, b'{"update":{}}', {"writer"}),
    ("PATCH", RECORD, {"Content-Type": "application/json", **RETURNED}, b'{"update":{}}', set()),
    ("PATCH", RECORD, {"Content-Type": "application/json", "Prefer": "wait=5, return=representation"}, b"{}", set()),
    ("DELETE", RECORD, {}, None, {"writer"}),
    ("DELETE", RECORD, RETURNED, None, {"writer"}),
    ("POST", "/v1/tables/t/batch", {}, b'{"operations":[]}', {"reader", "writer"}),
]


@pytest.mark.parametrize("name", ["all", "reader", "writer", "none", "operator"])
@pytest.mark.parametrize(("method", "path", "headers", "body", "allowed"), REQUESTS)
def test_a_single_request_requires_its_permission(
    owner: ApiClient, name: str, method: str, path: str, headers: dict[str, str], body: bytes | None, allowed: set[str]
) -> None:
    owner.put("t", "a", {"n": 0})
    response = owner.client.request(method, path, headers={**headers, **bearer(name)}, content=body)
    if name == "all":
        assert response.status_code in (200, 204, 422)
    elif name in allowed:
        assert response.status_code in (200, 204)
    else:
        assert response.status_code == 403
        assert owner.value("t", "a") == {"n": 0}
        if method != "HEAD":
            problem = check_refused(response, 403, "forbidden")
            assert [problem["retriable"], problem["applied"]] == [False, "no"]


def test_permissions_apply_to_the_decoded_name_of_the_table(client: httpx.Client) -> None:
    reader = bearer("reader")
    assert client.get("/v1/tables/%74/records/a", headers=reader).status_code in (200, 404)
    check_refused(client.get("/v1/tables/%78/records/a", headers=reader), 403, "forbidden")
    check_refused(client.get("/v1/tables/T/records/a", headers=reader), 403, "forbidden")
    # Decoded, the path names a record of the table t. As sent, it names a table that cannot exist.
    check_refused(client.get("/v1/tables/t%2Frecords%2Fx/records/a", headers=reader), 404, "table_not_found")
    for path in ("/v1/tables/x/records/../../t/records/a", "/v1/tables/x/../t/records/a"):
        answer = raw(client, f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: {reader['Authorization']}\r\n\r\n")
        assert b" 200 " not in answer.splitlines()[0]


@pytest.mark.parametrize("name", ["reader", "none", "operator"])
def test_a_table_without_permission_is_forbidden_even_if_absent(owner: ApiClient, name: str) -> None:
    there, absent = fresh("hidden"), fresh("hidden")
    owner.put(there, "a", {"n": 1})

    def asked(table: str) -> list[tuple[int, str]]:
        found = []
        for method, rest in (("GET", ""), ("GET", "/records/a"), ("GET", "/records"), ("GET", "/splits")):
            found.append(owner.client.request(method, f"/v1/tables/{table}{rest}", headers=bearer(name)))
        for method in ("PUT", "PATCH", "DELETE"):
            path = f"/v1/tables/{table}/records/a"
            found.append(owner.client.request(method, path, headers=bearer(name), content=b"{}"))
        content = b'{"operations":[{"op":"put","key":"a","value":{}}]}'
        found.append(owner.client.post(f"/v1/tables/{table}/batch", headers=bearer(name), content=content))
        return [(response.status_code, response.text.replace(table, "T")) for response in found]

    assert asked(there) == asked(absent)
    assert {status for status, _ in asked(there)} == {403}
    assert owner.value(there, "a") == {"n": 1}
    check_refused(owner.client.get(f"/v1/tables/{absent}"), 404, "table_not_found")


def test_a_rejected_request_creates_no_table(owner: ApiClient) -> None:
    table = fresh("table")  # the reader has the permission to read it
    put = {"op": "put", "key": "a", "value": {}}
    check_refused(owner.put(table, "a", {}, headers=bearer("reader")), 403, "forbidden")
    [result] = owner.batch(table, put, headers=bearer("reader"))
    check_problem(result["error"], 403, "forbidden")
    check_refused(owner.client.get(f"/v1/tables/{table}"), 404, "table_not_found")


def test_only_tables_with_a_permission_are_listed(owner: ApiClient) -> None:
    seen, hidden = fresh("table"), fresh("hidden")
    for table in (seen, hidden):
        owner.put(table, "a", {})

    def listed(name: str) -> set[str]:
        tables = owner.client.get("/v1/tables", headers=bearer(name)).json()["tables"]
        return {table["name"] for table in tables}

    assert {seen, hidden, "t"} <= listed("all")
    for name in ("reader", "writer"):
        assert {seen, "t"} <= listed(name)
        assert hidden not in listed(name)
    assert listed("none") == listed("operator") == set()


# Batches

OPERATIONS: list[dict[str, Any]] = [
    {"op": "get", "key": "g"},
    {"op": "put", "key": "p", "value": {"n": 1}},
    {"op": "put", "key": "q", "value": {"n": 1}, "return": True},
    {"op": "update", "key": "u", "update": {"$inc": {"n": 1}}, "default": {"n": 0}},
    {"op": "update", "key": "v", "update": {"$inc": {"n": 1}}, "default": {"n": 0}, "return": True},
    {"op": "delete", "key": "d"},
    {"op": "jump", "key": "j"},
]
BATCHES = [
    ("all", [200, 204, 200, 201, 201, 204, 422]),
    ("reader", [200, 403, 403, 403, 403, 403, 422]),
    ("writer", [403, 204, 403, 201, 403, 204, 422]),
]


@pytest.mark.parametrize(("name", "expected"), BATCHES)
def test_each_operation_of_a_batch_requires_its_permission(owner: ApiClient, name: str, expected: list[int]) -> None:
    table = fresh("table")
    owner.batch(table, *({"op": "put", "key": key, "value": {"old": True}} for key in "gd"))
    results = owner.batch(table, *OPERATIONS, headers=bearer(name))
    assert statuses(results) == expected
    for result, operation in zip(results, OPERATIONS, strict=True):
        if result["status"] == 403:
            check_problem(result["error"], 403, "forbidden")
            assert result.keys() == {"status", "error"}
            was = 200 if operation["key"] in "gd" else 404
            assert owner.get(table, operation["key"]).status_code == was


# Before the body


def raw(client: httpx.Client, head: str) -> bytes:
    """Send only the head of a request, and return the response."""
    where = (client.base_url.host, client.base_url.port or 80)
    with socket.create_connection(where, timeout=10) as connection:
        connection.sendall(head.encode())
        return connection.recv(65536)


@pytest.mark.parametrize(
    ("request_line", "name", "status"),
    [
        ("PUT /v1/tables/t/records/a", None, 401),
        ("POST /v1/tables/t/batch", None, 401),
        ("PUT /v1/tables/t/records/a", "reader", 403),
        ("PATCH /v1/tables/t/records/a", "reader", 403),
        ("POST /v1/tables/x/batch", "reader", 403),
    ],
)
def test_a_request_is_rejected_before_its_body(
    client: httpx.Client, request_line: str, name: str | None, status: int
) -> None:
    authorization = "" if name is None else f"Authorization: Bearer {SECRETS[name]}\r\n"
    head = f"{request_line} HTTP/1.1\r\nHost: h\r\n{authorization}Content-Type: application/json\r\n"
    answer = raw(client, f"{head}Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)


# Information that no response contains


def test_no_answer_metric_or_log_has_a_token_or_a_digest(guarded: Service, client: httpx.Client) -> None:
    secrets = [one.lower() for one in (*SECRETS.values(), *DIGESTS.values(), "tableside_wrong")]
    paths = ("/v1/tables", "/v1/tables/t", RECORD, "/metrics", "/readyz", "/openapi.json", "/nowhere")
    told = [client.get(path, headers=bearer(name)) for name in NAMES for path in paths]
    told.append(client.get("/v1/tables", headers={"Authorization": "Bearer tableside_wrong"}))
    told.append(client.get(RECORD, params={"token": SECRETS["all"]}, headers=bearer("all")))
    shown = [f"{response.headers} {response.text}" for response in told] + [guarded.log.read_text()]
    assert "unauthenticated" in shown[-1]
    assert not [secret for secret in secrets if any(secret in text.lower() for text in shown)]


def test_the_callers_name_is_logged(guarded: Service, client: httpx.Client) -> None:
    batch = {"operations": [{"op": "put", "key": "p", "value": {}}, {"op": "get", "key": "q"}]}
    for name in ("all", "none"):
        client.get(f"{RECORD}-absent", headers={**bearer(name), "X-Request-Id": f"log-{name}"})
    client.get(RECORD, headers={"X-Request-Id": "log-without"})
    client.post(BATCH, json=batch, headers={**bearer("writer"), "X-Request-Id": "log-writer"})

    def logged() -> dict[str, tuple[Any, ...]]:
        lines = [json.loads(line) for line in guarded.log.read_text().splitlines()]
        found = [one for one in lines if one["logger"] == REQUEST_LOGGER and one["request_id"].startswith("log-")]
        return {one["request_id"][4:]: (one["caller"], one["status"], one["code"], one["failed"]) for one in found}

    until(lambda: len(logged()) == 4)
    assert logged() == {
        "all": ("all", 404, "record_not_found", 0),
        "none": ("none", 403, "forbidden", 0),
        "without": (None, 401, "unauthenticated", 0),
        "writer": ("writer", 200, None, 1),
    }


async def test_the_store_learns_who_calls() -> None:
    batch = {"operations": [{"op": "put", "key": "p", "value": {}}, {"op": "get", "key": "q"}]}
    async with served(auth={"tokens": TOKENS}, drain_s=0) as service, connected(service, 1) as [caller]:
        await caller.ask("GET", RECORD, authorization=bearer("reader")["Authorization"])
        await caller.ask("POST", BATCH, batch, authorization=bearer("writer")["Authorization"])
        assert service.store.callers == ["reader", "writer"]


def test_deleting_many_records_needs_the_permission_to_write_only(client: httpx.Client, owner: ApiClient) -> None:
    owner.put("t", "many-1", {})
    query = {"prefix": "many-"}
    check_refused(client.delete("/v1/tables/t/records", params=query, headers=bearer("reader")), 403, "forbidden")
    assert owner.value("t", "many-1") == {}
    response = client.delete("/v1/tables/t/records", params=query, headers=bearer("writer"))
    assert (response.status_code, response.json()) == (200, {"deleted": 1, "cursor": None})


def test_generations_have_the_permissions_of_their_table(client: httpx.Client, owner: ApiClient) -> None:
    table = fresh("t")
    assert owner.put(table, "a", {}).status_code == 204
    number = owner.client.post(f"/v1/tables/{table}/generations").json()["generation"]
    path = f"/v1/tables/{table}/generations"
    requests = {
        "read": [
            ("GET", path),
            ("GET", f"/v1/tables/{table}@{number}/records/a"),
            ("GET", f"/v1/tables/{table}@1/records"),
        ],
        "write": [
            *(("POST", path), ("PUT", f"/v1/tables/{table}@{number}/records/a"), ("DELETE", f"{path}/99")),
            ("POST", f"{path}/{number}/activate"),
        ],
    }
    for name, permission in (("none", None), ("reader", "read"), ("writer", "write")):
        for needed, sent in requests.items():
            for method, place in sent:
                answer = client.request(method, place, headers=bearer(name), json={} if method == "PUT" else None)
                assert (answer.status_code == 403) == (needed != permission), (name, method, place, answer.text)
