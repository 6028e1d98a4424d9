"""`tableside token`: new tokens, and the caller that a configuration gives a token, or why the token is rejected."""

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from support.issuing import Issuer, SigningKey, claims, issuing
from tableside.auth import Auth
from tableside.cli import app
from tableside.settings import validate


def new(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["token", "new", *arguments])


def test_a_new_token_matches_its_printed_entry() -> None:
    made = [new("etl", "--read", "*", "--read", "a?", "--write", "profile*") for _ in range(2)]
    [token, line], [other, _] = (one.stdout.splitlines() for one in made)
    entries = yaml.safe_load(line)
    auth = validate({"stores": {"s": {"kind": "memory"}}, "auth": {"tokens": entries}}).auth
    caller = Auth(auth, CollectorRegistry()).caller_of(token.encode())
    assert (caller.name, caller.admin) == ("etl", False)
    assert caller.may("read", "any")
    assert [caller.may("write", table) for table in ("profiles", "any")] == [True, False]
    assert token not in line
    assert len(token) > 40
    assert token != other
    [admin] = yaml.safe_load(new("op", "--admin").stdout.splitlines()[1])
    assert (admin["admin"], admin["read"], admin["write"]) == (True, [], [])


@pytest.mark.parametrize("arguments", [["a b"], [""], ["etl", "--read", "a/b"], ["etl", "--write", ""]])
def test_a_token_with_an_invalid_entry_is_not_created(arguments: list[str]) -> None:
    refused = new(*arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


@pytest.fixture
def config(issuer: Issuer, tmp_path: Path) -> Path:
    rule = {"claims": {"sub": "etl"}, "read": ["*"], "write": ["a", "b*"]}
    digest = sha256(b"configured").hexdigest()
    tokens: list[dict[str, Any]] = [{"name": "one", "sha256": digest.upper(), "read": ["t"], "admin": True}]
    file = tmp_path / "tableside.yaml"
    auth = {"tokens": tokens, "issuers": [issuer.settings(rule)]}
    file.write_text(json.dumps({"stores": {"s": {"kind": "memory"}}, "auth": auth}))
    return file


def explained(config: Path, token: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["token", "explain", "--config", str(config), *arguments], input=f"{token}\n")


def test_it_prints_the_caller_and_the_permissions(config: Path, issuer: Issuer) -> None:
    found = explained(config, issuer.token(sub="etl"))
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [f"caller: {issuer.url}#etl", "read:   *", "write:  a, b*", "admin:  no"]
    found = explained(config, issuer.token(sub="other"))
    assert found.stdout.splitlines()[1:] == ["read:   nothing", "write:  nothing", "admin:  no"]
    found = explained(config, "configured")
    assert found.stdout.splitlines() == ["caller: one", "read:   t", "write:  nothing", "admin:  yes"]


def test_the_token_may_be_in_a_file(config: Path, issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.token(sub="etl"))
    assert explained(config, "", "--token-file", str(file)).exit_code == 0
    missing = explained(config, "", "--token-file", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "No such file" in missing.stderr


def test_it_prints_why_a_token_is_rejected_without_the_token(config: Path, issuer: Issuer) -> None:
    stranger = SigningKey("stranger").signed(claims(issuer.url))
    for token, reason in (
        (issuer.token(exp=1), "expired"),
        (issuer.token(aud="other"), "audience"),
        (stranger, "key"),
        ("configured2", "unknown"),
        ("", "missing"),
    ):
        found = explained(config, token)
        assert (found.exit_code, found.stdout, found.stderr) == (1, "", f"rejected: {reason}\n")


def test_an_unreachable_issuer_is_an_error_message(config: Path, issuer: Issuer) -> None:
    issuer.away = True
    found = explained(config, issuer.token(sub="etl"))
    assert found.exit_code == 1
    assert "cannot be fetched" in found.stderr


def test_a_configuration_without_auth_is_an_error_message(config: Path) -> None:
    config.write_text("stores: {s: {kind: memory}}\n")
    assert "no auth" in explained(config, "x").stderr
    config.write_text("stores: {s: {kind: memory}}\nauth: {}\n")
    assert "auth: needs tokens" in explained(config, "x").stderr


class Terminal(io.BytesIO):
    """Standard input, which must not be read in an event loop: that would ignore the first SIGINT."""

    def read(self, size: int | None = -1) -> bytes:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return super().read(size)


def test_ctrl_c_ends_the_wait_for_a_token(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(b"configured\n")))
    app(["token", "explain", "--config", str(config)], standalone_mode=False)
    assert capsys.readouterr().out.startswith("caller: one\n")
