"""The client with a real service, and with a scripted one."""

import json
import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from servers.process import free_port
from support.running import Service
from tableside_client import Client
from tableside_client.arrow_table import read_stream, stream_bytes
from tableside_client.credential import REFRESH_INTERVAL_S, Credential, CredentialError, RefreshingToken
from tableside_client.errors import UNREACHABLE
from tableside_client.retries import Retries
from tableside_spark import TableError
from tableside_spark.executor.task_client import Connection

pytestmark = pytest.mark.server

QUICK = Retries(attempts_max=3, first_s=0.001, longest_s=0.002, total_s=5.0)


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, retries=QUICK) as opened:
        yield opened


def test_a_batch_answers_in_order_and_a_failed_operation_is_a_row(client: Client) -> None:
    operations = pa.table(
        {
            "key": ["a", "b", "a", "c"],
            "op": ["put", "update", "get", "put"],
            "value": ['{"n": 1}', None, None, "[]"],
            "update": [None, '{"$inc": {"n": 1}}', None, None],
        }
    )
    answer = client.arrow_table("client_batch").batch(operations)
    assert answer["status"].to_pylist() == [204, 404, 200, 422]
    assert answer["code"].to_pylist() == [None, "record_not_found", None, "invalid_operation"]
    assert json.loads(answer["value"][2].as_py()) == {"n": 1}


def test_a_batch_beyond_the_services_limit_is_sent_in_parts(client: Client) -> None:
    keys = [f"k{number}" for number in range(25_000)]
    values = pa.repeat('{"n": 1}', len(keys))
    table = client.arrow_table("client_halves")
    outcomes = table.batch(pa.table({"key": keys, "value": values}), op="put")
    assert outcomes["code"].null_count == 25_000
    seen = [key for page in table.scan(limit=7_000) for key in page["key"].to_pylist()]
    assert set(seen) == set(keys)
    parts = client.table("client_halves").splits(4)
    by_split = [key for part in parts for page in table.scan(split=part) for key in page["key"].to_pylist()]
    assert sorted(by_split) == sorted(keys)
    assert client.table("client_halves").describe()["name"] == "client_halves"
    assert "client_halves" in [table["name"] for table in client.tables()]


def test_an_unreachable_service_is_an_error_or_in_a_batch_failed_rows() -> None:
    with Client(f"http://127.0.0.1:{free_port()}", retries=QUICK) as client:
        with pytest.raises(TableError) as caught:
            client.table("t").record("a")
        assert (caught.value.code, caught.value.applied, caught.value.retriable) == (UNREACHABLE, "no", True)
        answer = client.arrow_table("t").batch(pa.table({"key": ["a", "b"]}), op="get")
        assert answer["code"].to_pylist() == [UNREACHABLE, UNREACHABLE]
        assert answer["retries"].to_pylist() == [2, 2]
        assert client.waited_s > 0


@contextmanager
def answering(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[Any]]]:
    """Run a server that sends these responses in order, and yield it with its requests."""
    asked: list[Any] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, dict(self.headers), body))
            status, headers, content = left.pop(0)
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names the server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def problem(status: int, code: str, *, applied: str = "no") -> tuple[int, dict[str, str], bytes]:
    body = {"status": status, "code": code, "retriable": True, "applied": applied, "detail": "later"}
    return status, {"Content-Type": "application/problem+json", "Retry-After": "0"}, json.dumps(body).encode()


FOUND = (200, {"Content-Type": "application/json", "ETag": '"e"'}, b'{"n":1}')


def test_retriable_failures_are_retried_and_unknown_outcomes_are_not() -> None:
    with answering(problem(429, "throttled"), (503, {}, b"<html>"), FOUND) as (url, asked):
        with Client(url, retries=QUICK) as client:
            assert client.table("t").record("a").value == {"n": 1}
        assert len(asked) == 3
    with answering(problem(503, "store_unavailable", applied="unknown")) as (url, asked):
        with Client(url, retries=QUICK) as client:
            rows = pa.table({"key": ["a"], "update": ["{}"]})
            assert client.arrow_table("t").batch(rows, op="update")["applied"].to_pylist() == ["unknown"]
        assert len(asked) == 1


@pytest.mark.parametrize("status", [302, 308])
def test_a_redirected_write_is_a_failure(status: int) -> None:
    """A proxy that requires TLS or a login redirects: nothing was written, and the token goes to no other server."""
    with (
        answering((200, {}, b"{}")) as (elsewhere, wrongly_asked),
        answering(*[(status, {"Location": f"{elsewhere}/login"}, b"")] * 4) as (url, asked),
        Client(url, token="marked-token", retries=QUICK) as client,
    ):
        for write in (
            lambda: client.table("t").put("a", {"n": 1}),
            lambda: client.table("t").update("a", {"n": 1}),
            lambda: client.table("t").delete("a"),
            lambda: client.arrow_table("t").batch(pa.table({"key": ["a"]}), op="delete"),
        ):
            with pytest.raises(TableError, match=f"status {status} that is not from the service") as caught:
                write()
            assert (caught.value.retriable, caught.value.applied) == (False, "no")
        assert (len(asked), wrongly_asked) == (4, [])


def test_a_batch_sends_only_the_failed_positions_again() -> None:
    def answer(*codes: str | None) -> tuple[int, dict[str, str], bytes]:
        rows = [
            {"status": 503 if code else 204, "code": code, "retriable": bool(code), "applied": "no", "replayed": False}
            for code in codes
        ]
        columns = ("status", "value", "etag", "code", "detail", "retriable", "applied", "replayed")
        table = pa.table({name: [row.get(name) for row in rows] for name in columns})
        return 200, {"Content-Type": "application/vnd.apache.arrow.stream"}, stream_bytes(table)

    with answering(answer(None, "contended", None), answer(None)) as (url, asked):
        with Client(url, retries=QUICK) as client:
            rows = pa.table({"key": ["a", "b", "c"], "update": ["{}"] * 3, "sequence": [0, 0, 0]})
            result = client.arrow_table("t").batch(rows, op="update", writer="w/1")
        assert result["retries"].to_pylist() == [0, 1, 0]
        assert read_stream(asked[1][3]).to_pylist() == [{"key": "b", "update": "{}", "sequence": 0}]
        assert "writer=w%2F1" in asked[0][1]


@pytest.mark.parametrize("accepted", [True, False])
def test_a_rejected_token_is_reread_and_sent_once_more(tmp_path: Path, accepted: bool) -> None:
    path = tmp_path / "token"
    path.write_text("old\n")
    second = FOUND if accepted else (401, {}, b"")
    with answering((401, {}, b""), second, FOUND) as (url, asked), Client(url, token_file=str(path)) as client:
        path.write_text("new\n")
        with nullcontext() if accepted else pytest.raises(TableError, match="401"):
            client.table("t").record("a")
        assert [headers["Authorization"] for _, _, headers, _ in asked] == ["Bearer old", "Bearer new"]
        assert client.waited_s == 0


def test_a_token_file_is_reread_after_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    now = [0.0]
    token = RefreshingToken(Credential(path=str(path)), lambda: now[0])
    path.write_text("second")
    now[0] = REFRESH_INTERVAL_S - 1
    assert token.current() == "first"
    now[0] = REFRESH_INTERVAL_S
    assert token.current() == "second"
    path.write_text("third")
    now[0] = 2 * REFRESH_INTERVAL_S - 1
    assert token.current() == "second"
    assert REFRESH_INTERVAL_S <= 60  # Kubernetes renews a token at least two minutes before the old one expires.


def test_a_missing_token_file_keeps_its_token_until_it_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    now = [0.0]
    token = RefreshingToken(Credential(path=str(path)), lambda: now[0])
    path.unlink()
    now[0] = REFRESH_INTERVAL_S
    assert token.current() == "first"
    path.write_text("second")
    assert token.current() == "first"  # The client checks the file once a minute, not at each request.
    path.unlink()
    with pytest.raises(CredentialError, match="No such file"):
        token.reload_differs("first")
    path.write_text("second")
    assert token.reload_differs("first")
    assert token.current() == "second"


SECRET = "tableside_s3cr3t"


@pytest.mark.parametrize("token", [f"{SECRET}\nX-Evil: 1", f"{SECRET}ü", f"{SECRET} {SECRET}", f"\0{SECRET}"])
def test_a_token_that_is_invalid_in_a_header_is_rejected_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    options: list[dict[str, Any]] = [{"token": token}, {"token_file": str(file)}]
    for given in options:
        with pytest.raises(CredentialError, match="ASCII") as refusal:
            Client("http://127.0.0.1:9", **given)
        assert SECRET not in traceback_of(refusal.value)
    if "\0" not in token:
        monkeypatch.setenv("TABLESIDE_TOKEN", token)
        with pytest.raises(CredentialError, match="TABLESIDE_TOKEN") as refusal:
            Client("http://127.0.0.1:9")
        assert SECRET not in traceback_of(refusal.value)


@pytest.mark.parametrize("content", [None, b"\xff" + SECRET.encode()])
def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CredentialError, match=str(file)) as refusal:
        Client("http://127.0.0.1:9", token_file=str(file))
    assert SECRET not in traceback_of(refusal.value)


def test_no_log_error_or_repr_has_the_token(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        answering(problem(401, "unauthenticated")) as (url, _),
        Client(url, token=SECRET, retries=Retries(attempts_max=1)) as client,
    ):
        with pytest.raises(TableError, match="unauthenticated") as refusal:
            client.table("t").record("a")
        assert SECRET not in traceback_of(refusal.value)
        assert SECRET not in repr(vars(client))
    with Client("http://127.0.0.1:9", token=SECRET, retries=QUICK) as client:
        with pytest.raises(TableError, match=UNREACHABLE) as refusal:
            client.table("t").record("a")
        assert SECRET not in traceback_of(refusal.value)
    with answering(FOUND) as (url, _):
        monkeypatch.setenv("HTTP_PROXY", url)
        with Client("http://tableside.invalid", token=SECRET) as client:
            client.table("t").record("a")
    assert SECRET not in repr(Connection("http://127.0.0.1:9", SECRET))
    assert caplog.text
    assert SECRET not in caplog.text


def traceback_of(error: BaseException) -> str:
    """Return the full text of a traceback."""
    return "".join(traceback.format_exception(error)) + repr(error)
