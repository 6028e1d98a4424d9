"""Identification and permissions of callers, faults in their settings, and that no message shows a secret."""

import json
import traceback
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tableside.auth import TokenRejected
from tableside.auth.authenticator import Auth
from tableside.auth.permissions import Caller
from tableside.auth.settings import PATTERNS_MAX, TOKENS_MAX, AuthSettings
from tableside.catalog.reloader import beyond_reloading
from tableside.settings import Settings, SettingsError, validate

STORES = {"stores": {"local": {"kind": "memory"}}}


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


A, B = digest("a"), digest("b")


def settings(**auth: Any) -> Settings:
    return validate({**STORES, "auth": auth})


def auth_settings(**auth: Any) -> AuthSettings:
    found = settings(**auth).auth
    assert found is not None
    return found


def faults(auth: object, **more: Any) -> dict[str, str]:
    """Return the faults by path, after checking that they and a traceback show no digest."""
    with pytest.raises(SettingsError) as refusal:
        validate({**STORES, "auth": auth, **more})
    told = "".join(traceback.format_exception(refusal.value)).lower()
    assert not any(secret in told for secret in (A, B, A[:20], B[:20]))
    return {fault.path: fault.message for fault in refusal.value.faults}


# Patterns


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("*", ["a", "profiles", "x.y-z_1"], []),
        ("aircraft", ["aircraft"], ["Aircraft", "aircraft2", "my-aircraft", "aircraft\n", ""]),
        ("profile*", ["profile", "profiles", "profile.old"], ["Profiles", "myprofile"]),
        ("*.eu", ["orders.eu", ".eu"], ["orders_eu", "orders.eu.old"]),
        ("day?", ["day1", "dayX"], ["day", "day10"]),
        ("[!ab]c", ["cc"], ["ac"]),
    ],
)
def test_patterns_are_shell_globs_and_case_sensitive(pattern: str, matches: list[str], others: list[str]) -> None:
    caller = Caller("c", [pattern])
    assert [table for table in matches + others if caller.may("read", table)] == matches
    assert not any(caller.may("write", table) for table in matches)


# Settings


def test_tokens_are_identified_by_their_digests(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(json.dumps([{"name": "b", "sha256": B.upper(), "write": ["t"], "admin": True}]))
    auth = Auth(
        auth_settings(tokens=[{"name": "a", "sha256": A, "read": ["*"]}], tokens_file=str(file)), CollectorRegistry()
    )
    callers = auth.caller_of(b"a"), auth.caller_of(b"b")
    assert [(one.name, one.may("read", "t"), one.may("write", "t"), one.admin) for one in callers] == [
        ("a", True, False, False),
        ("b", False, True, True),
    ]
    for token in (b"", b"c", A.encode(), bytes.fromhex(A)):
        with pytest.raises(TokenRejected, match="unknown" if token else "missing"):
            auth.caller_of(token)


def test_every_fault_is_listed_with_its_path_and_without_the_digest() -> None:
    tokens = [
        {"name": "a", "sha256": A},
        {"name": "a", "sha256": A.upper()},
        {"name": "", "sha256": B[:-1]},
        {"name": "c", "sha256": f"{B}{B}", "read": "*", "write": ["a/b", ""]},
        {"sha256": 7, "reed": []},
        {"name": "e", "sha256": digest("")},
        "f",
    ]
    found = faults({"tokens": tokens, "metrics": "shut", "more": 1}, limits={"in_flight_max": 0})
    assert found.keys() == {
        "auth.tokens.1.name",
        "auth.tokens.1.sha256",
        "auth.tokens.2.name",
        "auth.tokens.2.sha256",
        "auth.tokens.3.sha256",
        "auth.tokens.3.read",
        "auth.tokens.3.write.0",
        "auth.tokens.3.write.1",
        "auth.tokens.4.name",
        "auth.tokens.4.sha256",
        "auth.tokens.4.reed",
        "auth.tokens.5.sha256",
        "auth.tokens.6",
        "auth.metrics",
        "auth.more",
        "limits.in_flight_max",
    }
    assert found["auth.tokens.1.sha256"] == "is the same as auth.tokens.0.sha256"
    assert found["auth.tokens.1.name"] == "is the same as auth.tokens.0.name"
    assert found["auth.tokens.2.sha256"] == "must be the SHA-256 digest of a token, in 64 hexadecimal digits"
    assert found["auth.tokens.5.sha256"] == "is the digest of an empty token"
    assert found["auth.tokens.4.reed"] == "is not a known option: did you mean read?"


def test_tokens_and_patterns_are_limited() -> None:
    most = ["a"] * PATTERNS_MAX
    assert len(auth_settings(tokens=[{"name": "a", "sha256": A, "read": most, "write": most}]).tokens[0].read) == len(
        most
    )
    found = faults({"tokens": [{"name": "a", "sha256": A, "read": [*most, "b"], "write": [*most, "b"]}]})
    assert found.keys() == {"auth.tokens.0.read", "auth.tokens.0.write"}
    tokens = [{"name": f"n{number}", "sha256": f"{number:064x}"} for number in range(TOKENS_MAX + 1)]
    assert len(auth_settings(tokens=tokens[1:]).tokens) == TOKENS_MAX
    assert list(faults({"tokens": tokens})) == ["auth.tokens"]


@pytest.mark.parametrize("auth", [{}, {"tokens": []}, {"tokens": [], "metrics": "admin"}, None, [], "tokens"])
def test_auth_without_tokens_is_a_fault(auth: object) -> None:
    assert list(faults(auth)) == ["auth"]


def test_faults_in_the_file_of_tokens_are_listed_with_the_others(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(json.dumps([{"name": "a", "sha256": B}, {"name": "b", "sha256": A}, {"name": "c", "sha256": "x"}]))
    found = faults({"tokens": [{"name": "a", "sha256": A}], "tokens_file": str(file)})
    assert found.keys() == {
        "auth.tokens_file.0.name",
        "auth.tokens_file.1.sha256",
        "auth.tokens_file.2.sha256",
    }
    assert found["auth.tokens_file.1.sha256"] == "is the same as auth.tokens.0.sha256"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("- {name: a, sha256: [", "is not YAML"),
        (f"a: {A}", "is not a YAML list of tokens"),
        (f"- {{name: a, sha256: {A}, sha256: {A}}}", "is given twice"),
    ],
)
def test_a_file_of_tokens_that_cannot_be_read_is_a_fault(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "tokens.yaml"
    if content is not None:
        file.write_text(content)
    found = faults({"tokens_file": str(file)})
    [(path, fault)] = found.items()
    assert path.removesuffix(".0.sha256") == "auth.tokens_file"
    assert message in fault


def test_an_unset_variable_is_one_fault() -> None:
    assert faults({"tokens_file": "${NOT_SET}"}) == {
        "auth.tokens_file": "the environment variable NOT_SET is not set",
    }


def test_digests_are_in_no_repr() -> None:
    found = settings(tokens=[{"name": "a", "sha256": A}])
    assert found.auth is not None
    auth = Auth(found.auth, CollectorRegistry())
    shown = f"{found!r} {found.auth} {found.auth.model_dump()} {found.auth.model_dump_json()} {auth!r}"
    shown += f" {auth.caller_of(b'a')!r}"
    assert "name='a'" in shown
    assert A not in shown


def test_only_a_restart_enables_or_disables_authentication() -> None:
    open_to_all, guarded = validate(STORES), settings(tokens=[{"name": "a", "sha256": A}])
    changed = settings(tokens=[{"name": "b", "sha256": B}], metrics="admin")
    assert [fault.path for fault in beyond_reloading(guarded, open_to_all)] == ["auth"]
    assert [fault.path for fault in beyond_reloading(open_to_all, guarded)] == ["auth"]
    assert beyond_reloading(guarded, changed) == []


def test_a_companion_needs_the_permission_to_write_its_table() -> None:
    reader, writer = Caller("r", read=["planes*"]), Caller("w", write=["planes"])
    assert not reader.may("read", "planes@runs")
    assert writer.may("read", "planes@runs")
    assert writer.may("write", "planes@runs")
    assert not writer.may("read", "planes")
