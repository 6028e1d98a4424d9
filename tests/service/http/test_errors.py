"""Every error response: they share one format, and a running service can return each of these codes."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from httpx import AsyncClient
from starlette.routing import Route

from service.http.api_client import (
    ARROW,
    JSON,
    MEMORY,
    ON_EVERY_STORE,
    ApiClient,
    application,
    check_problem,
    check_refused,
    fresh,
    path_of,
    statuses,
)
from service.telemetry.lines import logged
from support.served import Served, served
from tableside.app import create_app
from tableside.core.errors import (
    Contended,
    DeadlineExceeded,
    Overloaded,
    RecordUnreadable,
    StoreUnavailable,
    TableError,
    TooLarge,
    Unsupported,
)
from tableside.core.operations import Operation
from tableside.settings import validate
from tableside.stores.memory import MemoryBackend

T = "errors"


def get_paths() -> set[str]:
    """Return the paths of all routes with GET, for the table `t` and the key `a`."""
    app = create_app(validate(MEMORY))
    names = {"{table}": "t", "{key:path}": "a", "docs/{file}": "docs/swagger-ui.css", "{file}": "console.css"}
    routes = {route.path for route in app.router.routes if isinstance(route, Route) and "GET" in (route.methods or ())}
    return {re.sub("(docs/)?{.*?}", lambda name: names[name[0]], path) for path in routes}


# Errors of the service itself


def test_an_unknown_path_or_table_is_not_found(api: ApiClient) -> None:
    for path in ("/v1", "/v2/tables", "/v1/tables/", "/v1/tables/a/", "/v1/tables/a/rows", "/v1/tables//records/a"):
        check_refused(api.client.get(path), 404, "not_found")
    check_refused(api.client.post("/v1/tables/a/batch/"), 404, "not_found")
    check_refused(api.get(fresh("none"), "a"), 404, "table_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/tables/t/records/a", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("OPTIONS", "/v1/tables/t/records/a", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
        ("PUT", "/v1/tables/t/records", {"GET", "HEAD", "DELETE"}),
        ("GET", "/v1/tables/t/batch", {"POST"}),
        ("PUT", "/v1/tables/t", {"GET", "HEAD"}),
        ("DELETE", "/v1/tables/t/splits", {"GET", "HEAD"}),
        ("POST", "/livez", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(
    api: ApiClient, method: str, path: str, allowed: set[str]
) -> None:
    response = api.client.request(method, path)
    check_refused(response, 405, "method_not_allowed")
    assert set(re.split(", *", response.headers["Allow"])) == allowed


@pytest.mark.parametrize("path", ["/v1/tables", f"/v1/tables/{T}", f"/v1/tables/{T}/splits", path_of(T, "a")])
def test_an_unacceptable_media_type_is_rejected(api: ApiClient, path: str) -> None:
    api.put(T, "a", {})
    for accept in ("text/html", ARROW, f"{JSON};q=0"):
        check_refused(api.client.get(path, headers={"Accept": accept}), 406, "not_acceptable")
    for accept in ("*/*", "application/*;q=0.1", f"text/html, {JSON}"):
        assert api.client.get(path, headers={"Accept": accept}).status_code == 200


def test_a_write_returns_a_value_only_in_an_accepted_media_type(api: ApiClient) -> None:
    key, returned = fresh(), {"Prefer": "return=representation"}
    assert api.put(T, key, {}, headers={"Accept": "text/html"}).status_code == 204
    check_refused(api.put(T, key, {"n": 1}, headers={"Accept": "text/html", **returned}), 406, "not_acceptable")
    assert api.value(T, key) == {}
    assert api.put(T, key, {"n": 1}, headers={"Accept": "", **returned}).json() == {"n": 1}


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"Content-Type": media}
            for media in ("text/plain", "application/x-www-form-urlencoded", ARROW, "json", "*/*")
        ),
        {"Content-Encoding": "gzip"},
    ],
)
def test_a_put_in_another_media_type_is_refused(api: ApiClient, headers: dict[str, str]) -> None:
    response = api.client.put(path_of(T, fresh()), content=b"{}", headers=headers)
    check_refused(response, 415, "unsupported_media_type")


def in_chunks(size_bytes: int) -> Iterator[bytes]:
    yield b'{"a":"'
    for _ in range(size_bytes // 1000):
        yield b"x" * 1000
    yield b'"}'


def test_a_body_has_a_limit_whether_its_length_is_declared_or_not(api: ApiClient) -> None:
    key = fresh()
    within, beyond = b"".join(in_chunks(262_000)), b"".join(in_chunks(263_000))
    for content in (within, in_chunks(262_000)):
        assert api.client.put(path_of(T, key), content=content).status_code == 204
    for method, path in (("PUT", path_of(T, key)), ("PATCH", path_of(T, key)), ("POST", f"/v1/tables/{T}/batch")):
        for content in (beyond, in_chunks(263_000)):
            response = api.client.request(method, path, content=content, headers={"Content-Type": JSON})
            assert "262144" in check_refused(response, 413, "too_large")["detail"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"n":1e400}', b'{"n":NaN}', b'{"n":"\\ud800"}', b'{"n":"\xff"}', b"[" * 100_000, b"{'a':1}"]
)
def test_invalid_json_is_malformed(api: ApiClient, body: bytes) -> None:
    for method, media in (("PUT", JSON), ("PATCH", JSON), ("PATCH", "application/merge-patch+json")):
        response = api.client.request(method, path_of(T, "a"), content=body, headers={"Content-Type": media})
        problem = check_refused(response, 400, "malformed_request")
        assert [problem["retriable"], problem["applied"]] == [False, "no"]


@pytest.mark.parametrize("element", ["[]", "[[]]"])
def test_an_object_of_too_many_elements_is_refused_with_the_name_of_the_limit(api: ApiClient, element: str) -> None:
    count = 100_000 // sum(map((element + ",").count, ",[{"))
    for members, status in ((count - 5, 2), (count + 5, 4)):
        value = f'{{"a":[{",".join([element] * members)}]}}'
        for method, body in (("PUT", value), ("PATCH", f'{{"update":{value},"default":{{}}}}')):
            response = api.client.request(method, path_of(T, fresh()), content=body, headers={"Content-Type": JSON})
            assert response.status_code // 100 == status, response.text
            if status == 4:
                assert "elements_max" in check_refused(response, 413, "too_large")["detail"]


def test_no_detail_contains_a_value(api: ApiClient) -> None:
    key, secret = fresh(), "s3cr3t-value"
    api.put(T, key, {"s": secret})
    refused = [
        api.update(T, key, {"update": {"$inc": {"s": 1}}}),
        api.put(T, key, {"s": secret, "_ts": secret}),
        api.client.put(path_of(T, key), content=b'{"s":"%s"' % secret.encode()),
        api.update(T, key, {"update": {"$push": {"s": secret}}}),
        api.put("aircraft", "N1", {"tailnum": secret}),
        api.put(T, key, {}, headers={"Tableside-Token": secret}),
    ]
    for response in refused:
        assert response.status_code >= 400
        assert secret not in response.text


# The service itself


@ON_EVERY_STORE
def test_probes_answer(api: ApiClient) -> None:
    assert api.client.get("/livez").json() == {"status": "alive"}
    ready = api.client.get("/readyz")
    assert ready.status_code == 200
    stores = ["local", "one", "other"] if api.partitioned else ["local"]
    assert ready.json()["stores"] == {store: {"ready": True, "detail": None} for store in stores}


@ON_EVERY_STORE
def test_tables_are_described(api: ApiClient) -> None:
    tables = {table["name"]: table for table in api.client.get("/v1/tables").json()["tables"]}
    assert list(tables) == sorted(tables)
    visits = tables["visits"]
    described = api.client.get("/v1/tables/visits").json()
    assert {**visits, "policies": None} == {**described, "policies": None}
    assert visits["policies"] == {}
    assert described["policies"].items() >= {"deadline_s": 10.0, "ttl_s": None, "consistency": "strong"}.items()
    assert visits["key"] == [{"name": "user", "type": "string"}, {"name": "day", "type": "string"}]
    assert visits["store"]["kind"] in ("memory", "rocksdb", "partitioned")
    assert visits["capabilities"]["partitions"] == api.partitioned
    assert visits.get("partitions") == (2 if api.partitioned else None)
    assert set(visits["capabilities"]) >= {"if_match", "ttl", "tokens", "prefix_scan", "sorted_scan", "splits"}
    assert all(value in (True, False) for value in visits["capabilities"].values())
    assert visits["limits"]["operations_max"] == 200
    in_flight = ("in_flight_max", "operations_in_flight_max", "bytes_in_flight_max")
    assert [visits["limits"][name] for name in in_flight] == [1024, 100_000, 2**28]
    assert tables["hour"]["policies"] == {"ttl_s": 3600}
    check_refused(api.client.get(f"/v1/tables/{fresh('none')}"), 404, "table_not_found")


def test_the_root_path_redirects_to_a_page(api: ApiClient) -> None:
    answer = api.client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (307, "/console")
    check_refused(api.client.post("/"), 405, "method_not_allowed")


async def test_without_a_console_the_root_path_redirects_to_the_documentation() -> None:
    async with application({"console": {"enabled": False}}) as (_, http):
        assert (await http.get("/")).headers["Location"] == "/docs"


def test_no_response_names_the_server_software(api: ApiClient) -> None:
    for path in ("/livez", "/v1/tables", "/v1/tables/none", "/docs"):
        assert "Server" not in api.client.get(path).headers


def test_every_route_with_get_accepts_head(api: ApiClient) -> None:
    api.put("t", "a", {})
    for path in get_paths():
        full, head = api.client.get(path), api.client.head(path)
        without_key_or_generations = path.startswith("/console") and full.status_code in (422, 501)
        assert full.status_code in (200, 307) or without_key_or_generations, path
        assert head.status_code == full.status_code, path
        assert head.headers.get("Content-Type") == full.headers.get("Content-Type")


# Errors that need a failing store


class Site:
    """A running service with one table, `t`, a client of it, and its scripted store."""

    def __init__(self, service: Served, client: AsyncClient) -> None:
        self.client = client
        self.store = service.store

    @property
    def keys(self) -> list[Any]:
        """The keys of all operations that reached the store."""
        return [operation.key for call in self.store.calls for operation in call]

    def fail(self, error: TableError) -> None:
        """End all operations on the key `k` with an error."""
        self.store.fault = lambda operation, call: error if operation.key == "k" else None

    async def batch(self, *operations: object, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
        response = await self.client.post("/v1/tables/t/batch", json={"operations": list(operations)}, headers=headers)
        assert response.status_code == 200
        results: list[dict[str, Any]] = response.json()["results"]
        return results


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with served(drain_s=0) as service, AsyncClient(base_url=service.url, timeout=30) as client:
        yield Site(service, client)


ENDINGS = [
    (Contended("x"), 409),
    (TooLarge("x"), 413),
    (Unsupported("tokens"), 501),
    (RecordUnreadable("x"), 502),
    (StoreUnavailable("x"), 503),
    (Overloaded("x"), 503),
    (StoreUnavailable("x", applied="unknown", retry_after_s=7), 503),
    (StoreUnavailable("x", retry_after_s=0.2), 503),
    (DeadlineExceeded("x", applied="unknown"), 504),
]


@pytest.mark.parametrize(("error", "status"), ENDINGS, ids=lambda value: getattr(value, "code", value))
async def test_a_failing_store_has_the_documented_errors(site: Site, error: TableError, status: int) -> None:
    site.fail(error)
    for method in ("GET", "PUT", "DELETE"):
        response = await site.client.request(method, "/v1/tables/t/records/k", json={} if method == "PUT" else None)
        problem = check_refused(response, status, error.code)
        assert [problem["retriable"], problem["applied"]] == [error.retriable, error.applied]
        assert problem.get("retry_after_s") == error.retry_after_s
        assert response.headers.get("Retry-After") == {None: None, 7: "7", 1.0: "1", 0.2: "1"}[error.retry_after_s]
    [result] = await site.batch({"op": "get", "key": "k"})
    assert result["status"] == status
    check_problem(result["error"], status, error.code)


async def test_an_exception_is_internal_and_reveals_no_details(site: Site) -> None:
    def fault(operation: Operation, call: int) -> TableError:
        raise ZeroDivisionError("of a secret kind")

    site.store.fault = fault
    response = await site.client.get("/v1/tables/t/records/k")
    check_refused(response, 500, "internal")
    assert "secret" not in response.text


async def test_a_deadline_ends_unfinished_operations_without_further_calls(site: Site) -> None:
    site.store.takes_s = lambda operations: 20
    results = await site.batch(
        {"op": "get", "key": "a"},
        {"op": "put", "key": "b", "value": {}},
        {"op": "get", "key": "b"},
        headers={"Prefer": "wait=0.05"},
    )
    assert statuses(results) == [504, 504, 504]
    assert [result["error"]["code"] for result in results] == ["deadline_exceeded"] * 3
    assert [result["error"]["applied"] for result in results] == ["no", "unknown", "no"]
    assert sorted(site.keys) == ["a", "b"]


async def test_without_auto_create_a_write_creates_no_table(site: Site) -> None:
    for method, path in (("PUT", "/records/a"), ("PATCH", "/records/a"), ("DELETE", "/records/a"), ("POST", "/batch")):
        put: dict[str, object] = {"op": "put", "key": "a", "value": {}}
        body: dict[str, object] = {"operations": [put]} if method == "POST" else {"update": {}}
        response = await site.client.request(method, f"/v1/tables/none{path}", json=body)
        check_refused(response, 404, "table_not_found")
    assert [table["name"] for table in (await site.client.get("/v1/tables")).json()["tables"]] == ["t"]


async def test_stores_that_cannot_be_reached_are_logged_once_and_failed_probes_are_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(backend: MemoryBackend) -> None:
        raise StoreUnavailable("no route to host")

    with logged(requests=1) as lines:
        assert (await site.client.get("/readyz")).status_code == 200
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(MemoryBackend, "ping", unreachable)
                for _ in range(3):
                    response = await site.client.get("/readyz")
                    problem = check_refused(response, 503, "store_unavailable")
                    assert problem["stores"] == {"s": {"ready": False, "detail": "no route to host"}}
                    assert response.headers["Retry-After"]
                assert (await site.client.get("/livez")).status_code == 200
            assert [(await site.client.get("/readyz")).status_code for _ in range(3)] == [200] * 3
    seen = [(line["level"], line["event"]) for line in lines.all]
    assert seen == 2 * [
        ("error", "store s cannot be reached: no route to host"),
        ("info", "store s can be reached again"),
    ]
