"""A table as the state store uses it, from Java: requests, retries, tokens, and error messages."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from servers.process import free_port
from spark_client.scripted_service import Reply, Request, Scripted, problem, refusal, results, scripted
from spark_client.state.java import Java, java as java_process
from support.running import Service, running

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("java")]

CONFIG = """
stores:
  local: {kind: rocksdb, path: data}
default_store: local
auto_create: true
limits: {response_bytes_max: 65536, body_bytes_max: 262144}
tables:
  pair: {store: local, key: {place: string, item: string}}
  text: {store: local, key: {name: string}}
  three: {store: local, key: {a: string, b: string, c: string}}
  numbers: {store: local, key: {a: string, b: integer}}
  expiring: {store: local, key: {place: string, item: string}, ttl_s: 60}
"""
TOKEN = "s3cret-of-the-tests"
OTHER_TOKEN = "an0ther-secret"
Result = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with tables of several kinds of keys, and a low limit on response sizes."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tables.yaml").write_text(CONFIG)
    with running(folder, folder / "tables.yaml") as started:
        yield started


@pytest.fixture
def stub() -> Iterator[Scripted]:
    with scripted() as started:
        yield started


def get(item: str, **more: Any) -> dict[str, Any]:
    return {"op": "get", "key": ["p", item], **more}


def put(item: str, **more: Any) -> dict[str, Any]:
    given = more if "bytes" in more else {"value": {"n": 1}, **more}
    return {"op": "put", "key": ["p", item], **given}


def applied(java: Java, url: str, operations: Sequence[dict[str, Any]], table: str = "pair", **settings: Any) -> Result:
    """Apply operations, check that none failed, and return the result."""
    result = tried(java, url, operations, table, **settings)
    assert "failure" not in result, result["failure"]
    return result


def tried(java: Java, url: str, operations: Sequence[dict[str, Any]], table: str = "pair", **settings: Any) -> Result:
    """Apply operations, and return their outcomes or the failure."""
    result: Result = java.run("TableCases", "apply", **arguments_of(url, operations, table, **settings))
    assert result["waited_s"] <= result["took_s"]
    assert TOKEN not in str(result)
    assert OTHER_TOKEN not in str(result)
    return result


def arguments_of(url: str, operations: Sequence[dict[str, Any]], table: str = "pair", **settings: Any) -> Result:
    named = {name: str(setting) for name, setting in settings.items()}
    return {"settings": {"url": url, "table": table, **named}, "operations": list(operations)}


def statuses(result: Result) -> list[int]:
    return [outcome["status"] for outcome in result["outcomes"]]


def first(script: Callable[[Request], Reply | None], times: int = 1) -> Callable[[Request], Reply | None]:
    """Return a script for the first batches, after which the usual responses follow."""
    left = [times]

    def answer(asked: Request) -> Reply | None:
        if asked.method != "POST" or left[0] == 0:
            return None
        left[0] -= 1
        return script(asked)

    return answer


# Outcomes of operations


@pytest.mark.parametrize("table", ["pair", "text", "made-at-the-first-write"])
def test_each_operation_has_an_outcome_in_order(java: Java, site: Service, table: str) -> None:
    def apply(*operations: dict[str, Any]) -> Result:
        return applied(java, site.url, operations, table)

    assert [outcome["absent"] for outcome in apply(get("a"))["outcomes"]] == [True]
    assert statuses(apply(put("a", value={"n": 1, "m": 2}), put("b", if_absent=True))) == [204, 201]
    etag = apply(get("a"))["outcomes"][0]["etag"]
    result = apply(
        get("none"),
        put("b", if_absent=True),
        {"op": "update", "key": ["p", "c"], "update": {"$inc": {"n": 2}}, "default": {"n": 1}, "return": True},
        get("a", fields=["m"]),
        {"op": "delete", "key": ["p", "d"]},
        {"op": "update", "key": ["p", "e"], "update": {"$inc": {"n": 2}}},
        put("f", if_match=etag),
    )
    assert statuses(result) == [404, 412, 201, 200, 204, 404, 412]
    assert [outcome["absent"] for outcome in result["outcomes"]] == [True, *[False] * 4, True, False]
    assert [outcome["refused"] for outcome in result["outcomes"]] == [False, True, *[False] * 4, True]
    assert [outcome["value"] for outcome in result["outcomes"]][2:4] == [{"n": 3}, {"m": 2}]
    assert statuses(apply(put("a", value={"n": 9}, if_match=etag))) == [204]
    path = "p/a" if table == "pair" else "p%2Fa"
    assert httpx.get(f"{site.url}/v1/tables/{table}/records/{path}").json() == {"n": 9}


# The table


@pytest.mark.parametrize(
    ("table", "why"),
    [("three", "neither two strings nor one"), ("numbers", "neither two strings nor one"), ("expiring", "ttl_s")],
)
def test_an_unsuitable_table_is_rejected_with_the_configuration_to_write(
    java: Java, site: Service, table: str, why: str
) -> None:
    result = tried(java, site.url, [get("a")], table)
    assert (result["code"], result["calls"]) == ("unfit_table", 1)
    assert why in result["failure"]
    assert f"tables: {{{table}: {{store: …, key: {{place: string, item: string}}}}}}" in result["failure"]


# Requests


def test_requests_are_limited_in_size_and_concurrency(java: Java, stub: Scripted) -> None:
    stub.script = lambda asked: results(asked.operations, delay_s=0.05) if asked.operations else None
    operations = [put(f"{number}", bytes=1000 if number != 7 else 9000) for number in range(40)]
    result = applied(java, stub.url, operations, request_bytes_max=4096, in_flight_max=3)
    assert [outcome["value"]["key"][1] for outcome in result["outcomes"]] == [str(number) for number in range(40)]
    assert stub.under_way_max == 3
    large = [asked for asked in stub.batches if len(asked.body) > 4096]
    assert [[operation["key"][1] for operation in asked.operations] for asked in large] == [["7"]]
    assert max(len(asked.operations) for asked in stub.batches) == 2
    assert sum(len(asked.body) for asked in stub.batches) == result["sent_bytes"]
    assert (result["calls"], result["retries"]) == (len(stub.asked), 0)


def test_requests_are_bounded_in_operations_and_in_the_values_that_they_ask_for(java: Java, stub: Scripted) -> None:
    applied(java, stub.url, [get(f"{number}", fields=[]) for number in range(2500)], in_flight_max=1)
    assert [len(asked.operations) for asked in stub.batches] == [1000, 1000, 500]
    applied(java, stub.url, [get(f"{number}") for number in range(100)], in_flight_max=1, chunk_bytes_max=524288)
    assert [len(asked.operations) for asked in stub.batches[3:]] == [24, 24, 24, 24, 4]


def test_a_request_has_headers_for_content_caller_and_deadline(java: Java, stub: Scripted, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    applied(java, stub.url, [get("a")], token_file=tmp_path / "token", timeout_s=10, deadline_s=5)
    headers = stub.batches[0].headers
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-cache"
    assert headers["user-agent"].startswith("tableside-state/")
    assert headers["authorization"] == f"Bearer {TOKEN}"
    name, _, wait_s = headers["prefer"].partition("=")
    assert (name, 4 < float(wait_s) < 5) == ("wait", True)


# Temporary faults


def test_only_failed_operations_are_retried_and_outcomes_keep_their_positions(java: Java, stub: Scripted) -> None:
    def script(asked: Request) -> Reply:
        answers = json.loads(results(asked.operations).body)["results"]
        for index in range(0, len(answers), 2):
            answers[index] = {"status": 409, "error": problem(409, "contended", retriable=True)}
        return Reply(200, json.dumps({"results": answers}).encode())

    stub.script = first(script)
    result = applied(java, stub.url, [get(f"{number}") for number in range(5)])
    assert [outcome["value"]["key"][1] for outcome in result["outcomes"]] == ["0", "1", "2", "3", "4"]
    assert [operation["key"][1] for operation in stub.batches[1].operations] == ["0", "2", "4"]
    assert (result["calls"], result["retries"]) == (3, 1)


@pytest.mark.parametrize("stated", ["header", "problem", "result"])
def test_the_retry_delay_of_the_service_is_respected(java: Java, stub: Scripted, stated: str) -> None:
    def script(asked: Request) -> Reply:
        if stated == "header":
            return refusal(429, "throttled", retriable=True, headers={"Retry-After": "1"})
        if stated == "problem":
            return refusal(503, "overloaded", retriable=True, retry_after_s=0.4)
        answer = {"status": 504, "error": problem(504, "deadline_exceeded", retriable=True, retry_after_s=0.4)}
        return Reply(200, json.dumps({"results": [answer] * len(asked.operations)}).encode())

    stub.script = first(script)
    assert statuses(applied(java, stub.url, [put("a"), put("b")])) == [200, 200]
    before, after = stub.batches
    assert after.at_s - before.at_s >= (1 if stated == "header" else 0.4)
    assert after.operations == before.operations


HTML = {"Content-Type": "text/html"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(502, b"<html>bad gateway</html>", HTML),
        Reply(200, b'{"results": [{}]}'),
        Reply(200, b'{"results": [{"status": 204}]}', sent_max=10),
        Reply(200, b'{"results": []}', sent_max=9, hangs_s=30.0),
    ],
    ids=["a proxy's page", "a result of nothing", "half an answer", "an answer that does not end"],
)
def test_requests_with_invalid_responses_are_retried(java: Java, stub: Scripted, reply: Reply) -> None:
    stub.script = first(lambda _: reply, 2)
    timeout_s = 1 if reply.hangs_s else 30
    result = applied(java, stub.url, [get("a")], timeout_s=timeout_s)
    assert (statuses(result), result["calls"], result["retries"]) == ([200], 4, 2)
    stub.script = lambda asked: reply if asked.method == "POST" else None
    failed = tried(java, stub.url, [get("a")], timeout_s=timeout_s, deadline_s=0.5)
    assert "failure" in failed
    assert failed["took_s"] < 2


# Permanent faults


def test_at_the_deadline_the_error_states_address_attempts_and_duration(java: Java) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = tried(java, url, [get("a")], deadline_s=1.5)
    assert (result["code"], result["status"]) == ("service_unreachable", 0)
    assert result["took_s"] < 2.5
    assert result["calls"] > 2
    said = f"table pair at {url}: reading its key layout failed after {result['calls']} attempts in "
    assert result["failure"].startswith(said)
    assert "of at most 1.5 s: service_unreachable: " in result["failure"]
    assert "ConnectException: no connection" in result["failure"]  # perhaps of the attempt before a very short last one


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refusal(403, "forbidden", retriable=False), "forbidden"),
        (Reply(404, b"<html>", HTML), "unexpected_answer"),
        (Reply(302, b"", {"Location": "http://127.0.0.1:9/login"}), "unexpected_answer"),
    ],
)
def test_permanent_failures_are_not_retried(java: Java, stub: Scripted, reply: Reply, code: str) -> None:
    stub.script = lambda asked: reply if asked.operations else None
    result = tried(java, stub.url, [put("a")])
    assert (result["code"], result["status"], result["calls"]) == (code, reply.status, 2)


def test_a_failure_names_the_first_operation_that_failed(java: Java, site: Service) -> None:
    result = tried(java, site.url, [put("good"), put("bad", value=[1]), get("a")])
    assert (result["code"], result["status"]) == ("invalid_operation", 422)
    assert f"table pair at {site.url}: put of bad of p failed after 1 attempt" in result["failure"]


# Size limits


def test_responses_that_are_too_large_are_requested_in_parts(java: Java, site: Service) -> None:
    items = [f"large-{number}" for number in range(20)]  # Together they exceed the limit of a response.
    applied(java, site.url, [put(item, bytes=9000) for item in items])
    result = applied(java, site.url, [get(item) for item in items])
    assert statuses(result) == [200] * 20
    assert result["retries"] > 0
    applied(java, site.url, [put("larger", bytes=60000)])
    alone = tried(java, site.url, [get("larger"), get("a")])
    assert (alone["code"], alone["status"]) == ("too_large", 413)
    assert "get of larger of p" in alone["failure"]


def test_requests_that_are_too_large_are_sent_in_parts(java: Java, site: Service) -> None:
    result = applied(java, site.url, [put(f"wide-{number}", bytes=60000) for number in range(10)])
    assert (statuses(result), result["retries"] > 0) == ([204] * 10, True)
    alone = tried(java, site.url, [put("too wide", bytes=300000), put("narrow")])
    assert (alone["code"], "put of too wide of p" in alone["failure"]) == ("too_large", True)


def test_a_response_above_the_limit_is_not_read(java: Java, stub: Scripted) -> None:
    stub.script = lambda asked: Reply(200, b" " * (69 << 20)) if asked.operations else None
    result = tried(java, stub.url, [get("a")])
    assert (result["code"], result["calls"]) == ("too_large", 2)
    assert result["received_bytes"] < 69 << 20


# Tokens


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with authentication."""
    folder = tmp_path_factory.mktemp("guarded")
    digests = [hashlib.sha256(token.encode()).hexdigest() for token in (TOKEN, OTHER_TOKEN)]
    tokens = [f'{{name: t{digest[0]}, sha256: "{digest}", write: ["*"], read: ["*"]}}' for digest in digests]
    (folder / "tables.yaml").write_text(f"{CONFIG}auth: {{tokens: [{', '.join(tokens)}]}}\n")
    with running(folder, folder / "tables.yaml") as started:
        yield started


def test_a_rejected_token_is_reread_once(java: Java, guarded: Service, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("wrong-token")
    refused = tried(java, guarded.url, [put("a")], token_file=file)
    assert (refused["code"], refused["status"], refused["calls"]) == ("unauthenticated", 401, 1)
    assert "wrong-token" not in refused["failure"]
    file.write_text(OTHER_TOKEN)
    renewed = applied(java, guarded.url, [put("a")], token_file=file)
    assert (statuses(renewed), renewed["calls"], renewed["retries"]) == ([204], 3, 0)


def test_a_token_file_is_checked_periodically_and_may_be_absent_for_a_while(
    java: Java, stub: Scripted, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    arguments = arguments_of(stub.url, [get("a")], token_file=str(file)) | {"looks_again": True}
    for content in (TOKEN, None, OTHER_TOKEN):
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_text(content)
        assert "failure" not in java.run("TableCases", "apply", **arguments)
    sent = [asked.headers["authorization"] for asked in stub.batches]
    assert sent == [f"Bearer {TOKEN}", f"Bearer {TOKEN}", f"Bearer {OTHER_TOKEN}"]


@pytest.mark.parametrize("content", [None, b"two\nlines", b"\xff\xfe"])
def test_a_token_that_cannot_be_sent_is_refused_by_the_name_of_its_file(
    java: Java, stub: Scripted, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    result = tried(java, stub.url, [get("a")], token_file=file)
    assert (result["code"], result["calls"]) == ("token_unusable", 0)
    assert str(file) in result["failure"]
    assert "lines" not in result["failure"]


def test_without_a_file_the_token_is_the_environments(
    guarded: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLESIDE_TOKEN", TOKEN)
    with java_process(tmp_path) as java:
        assert statuses(applied(java, guarded.url, [put("a")])) == [204]
        shown = java.run("TableCases", "shown", **arguments_of(guarded.url, []))
    assert TOKEN not in str(shown)
    assert guarded.url in shown[0]


# Settings


def test_all_faults_of_the_settings_are_listed_together_without_secrets(java: Java) -> None:
    given = {
        "url": f"http://user:{TOKEN}@host",
        "table": "no table",
        "token": TOKEN,
        "timeout_s": "soon",
        "memory": "some",
        "chunk_bytes_max": "1",
        "tabel": "t",
        "key_file": "key.pem",
    }
    said = java.run("TableCases", "settings", settings=given)
    for name in given:
        assert f"tableside.state.{name} " in said
    assert TOKEN not in said
    assert "key_file requires certificate_file" in said
    assert "tableside.state.url is not given; tableside.state.table is not given" in java.run(
        "TableCases", "settings", settings={}
    )
