"""The client with a real service, and with a scripted one."""

import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_client.scripted_service import Reply, Request, scripted
from tableside_client import Client
from tableside_client.credential import REFRESH_INTERVAL_S, Credential, CredentialError, RefreshingToken
from tableside_client.errors import UNREACHABLE
from tableside_client.retries import Retries
from tableside_spark import TableError
from tableside_spark.executor.task_client import Connection

pytestmark = pytest.mark.server

QUICK = Retries(attempts_max=3, first_s=0.001, longest_s=0.002, total_s=5.0)


@contextmanager
def answering(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[Request]]]:
    """Run a server that sends these responses in order, and yield it with its requests."""
    left = [Reply(status, body, headers) for status, headers, body in answers]
    with scripted() as service:
        service.script = lambda _: left.pop(0)
        yield service.url, service.asked


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


@pytest.mark.parametrize("accepted", [True, False])
def test_a_rejected_token_is_reread_and_sent_once_more(tmp_path: Path, accepted: bool) -> None:
    path = tmp_path / "token"
    path.write_text("old\n")
    second = FOUND if accepted else (401, {}, b"")
    with answering((401, {}, b""), second, FOUND) as (url, asked), Client(url, token_file=str(path)) as client:
        path.write_text("new\n")
        with nullcontext() if accepted else pytest.raises(TableError, match="401"):
            client.table("t").record("a")
        assert [request.headers["authorization"] for request in asked] == ["Bearer old", "Bearer new"]
        assert client.waited_s == 0


def test_a_token_file_is_reread_after_a_minute_and_keeps_its_token_while_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    now = [0.0]
    token = RefreshingToken(Credential(path=str(path)), lambda: now[0])
    path.write_text("second")
    now[0] = REFRESH_INTERVAL_S - 1
    assert token.current() == "first"
    path.unlink()
    now[0] = REFRESH_INTERVAL_S
    assert token.current() == "first"
    with pytest.raises(CredentialError, match="No such file"):
        token.reload_differs("first")
    path.write_text("third")
    now[0] = 2 * REFRESH_INTERVAL_S
    assert token.current() == "third"
    assert REFRESH_INTERVAL_S <= 60  # Kubernetes renews a token at least two minutes before the old one expires.


SECRET = "tableside_s3cr3t"


@pytest.mark.parametrize("token", [f"{SECRET}\nX-Evil: 1", f"{SECRET}ü", f"\0{SECRET}"])
def test_a_token_that_is_invalid_in_a_header_is_rejected_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    options: list[dict[str, Any]] = [{"token": token}, {"token_file": str(file)}]
    if "\0" not in token:
        monkeypatch.setenv("TABLESIDE_TOKEN", token)
        options.append({})
    for given in options:
        with pytest.raises(CredentialError, match="ASCII") as refusal:
            Client("http://127.0.0.1:9", **given)
        assert SECRET not in traceback_of(refusal.value)
    file.write_bytes(b"\xff" + SECRET.encode())
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
