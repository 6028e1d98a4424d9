"""The settings of issuers, and every fault in them."""

from typing import Any

import pytest

from tableside.auth.settings import CLAIM_PATTERNS_MAX, ISSUERS_MAX, PATTERNS_MAX, RULES_MAX, AuthSettings
from tableside.settings import SettingsError, validate

STORES = {"stores": {"local": {"kind": "memory"}}}
RULE: dict[str, Any] = {"claims": {"sub": "*"}, "read": ["*"]}
ISSUER: dict[str, Any] = {"issuer": "https://id.example", "audience": "tableside", "rules": [RULE]}


def auth(*issuers: object, **more: Any) -> AuthSettings:
    found = validate({**STORES, "auth": {"issuers": list(issuers), **more}}).auth
    assert found is not None
    return found


def faults(*issuers: object, **more: Any) -> dict[str, str]:
    with pytest.raises(SettingsError) as refusal:
        auth(*issuers, **more)
    return {fault.path: fault.message for fault in refusal.value.faults}


def test_every_fault_is_listed_with_its_path() -> None:
    wrong = {
        "issuer": "http://id.example#x",
        "audience": [],
        "jwks_url": "http://id.example/keys",
        "algorithms": ["RS256", "HS256", "none", "rs256"],
        "leeway_s": 301,
        "refresh_s": 1,
        "name_claim": "a..b",
        "rules": [{"claims": {}, "raed": []}, {"claims": {"a": [], "b": 7}}, {"read": ["*"]}, {**RULE, "write": ["/"]}],
        "keys": [],
    }
    found = faults(wrong, "no issuer", {})
    assert found.keys() == {
        "auth.issuers.0.issuer",
        "auth.issuers.0.audience",
        "auth.issuers.0.jwks_url",
        "auth.issuers.0.algorithms.1",
        "auth.issuers.0.algorithms.2",
        "auth.issuers.0.algorithms.3",
        "auth.issuers.0.leeway_s",
        "auth.issuers.0.refresh_s",
        "auth.issuers.0.name_claim",
        "auth.issuers.0.rules.0.claims",
        "auth.issuers.0.rules.0.raed",
        "auth.issuers.0.rules.1.claims.a",
        "auth.issuers.0.rules.1.claims.b",
        "auth.issuers.0.rules.2.claims",
        "auth.issuers.0.rules.3.write.0",
        "auth.issuers.0.keys",
        "auth.issuers.1",
        "auth.issuers.2.issuer",
        "auth.issuers.2.audience",
        "auth.issuers.2.rules",
    }
    assert found["auth.issuers.0.keys"] == "is not a known option"


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://id.example/keys", True),
        ("https://[::1]:8443/", True),
        ("http://127.0.0.1:9/keys", True),
        ("http://localhost/keys", True),
        ("http://id.example/keys", False),
        ("http://127.0.0.1.example/keys", False),
        ("http://0.0.0.0/keys", False),
        ("https://user:secret@id.example/keys", False),
        ("https://id.example@127.0.0.1/", False),
        ("https://id.example/#keys", False),
        ("https://id.example:x/", False),
        ("file:///etc/passwd", False),
        ("id.example", False),
    ],
)
def test_keys_are_only_fetched_by_https_or_from_this_machine(url: str, taken: bool) -> None:
    named, discovered = {**ISSUER, "jwks_url": url}, {**ISSUER, "issuer": url}
    if taken:
        assert auth(named).issuers[0].jwks_url == url
    else:
        assert list(faults(named)) == ["auth.issuers.0.jwks_url"]
        assert faults(discovered).keys() <= {"auth.issuers.0", "auth.issuers.0.issuer"}


def test_an_issuer_that_is_no_url_needs_a_jwks_url() -> None:
    name = {**ISSUER, "issuer": "kubernetes/serviceaccount"}
    assert "jwks_url" in faults(name)["auth.issuers.0"]
    assert auth({**name, "jwks_url": "https://id.example/keys"}).issuers[0].issuer == name["issuer"]


def test_a_token_for_the_keys_requires_a_configured_address() -> None:
    assert "jwks_url" in faults({**ISSUER, "token_file": "/token"})["auth.issuers.0"]
    assert auth({**ISSUER, "token_file": "/token", "jwks_url": "https://id.example/keys"}).issuers[0].token_file


@pytest.mark.parametrize("path", ["", "a..b", "https://x.example/roles", "/a~2", "a.b.c.d.e.f.g.h.i"])
def test_an_impossible_claim_is_a_fault(path: str) -> None:
    [fault] = faults({**ISSUER, "rules": [{"claims": {path: "x"}}]})
    assert fault.startswith(f"auth.issuers.0.rules.0.claims.{path}")


def test_an_audience_is_unique_within_an_issuer() -> None:
    other = {**ISSUER, "audience": ["more", "other"]}
    assert len(auth(ISSUER, other, {**ISSUER, "issuer": "https://b.example"}).issuers) == 3
    found = faults(ISSUER, other, {**ISSUER, "audience": ["other", "tableside"]})
    assert list(found) == ["auth.issuers.2.audience"]


def test_issuers_and_rules_are_limited() -> None:
    many = [{**ISSUER, "issuer": f"https://i{number}.example"} for number in range(ISSUERS_MAX + 1)]
    assert len(auth(*many[1:]).issuers) == ISSUERS_MAX
    assert list(faults(*many)) == ["auth.issuers"]
    assert len(auth({**ISSUER, "rules": [RULE] * RULES_MAX}).issuers[0].rules) == RULES_MAX
    assert list(faults({**ISSUER, "rules": [RULE] * (RULES_MAX + 1)})) == ["auth.issuers.0.rules"]


def test_the_patterns_of_all_rules_together_are_limited() -> None:
    half = [f"t{number}" for number in range(PATTERNS_MAX // 2)]
    rule = {**RULE, "read": half}
    assert auth({**ISSUER, "rules": [rule, rule]}).issuers
    [message] = faults({**ISSUER, "rules": [rule, rule, {**rule, "read": ["x"]}]}).values()
    assert "patterns in read, all together" in message
    tenth = [f"s{number}" for number in range(CLAIM_PATTERNS_MAX)]
    rules = [{"claims": {"sub": tenth}}] * (PATTERNS_MAX // CLAIM_PATTERNS_MAX)
    assert auth({**ISSUER, "rules": rules}).issuers
    [message] = faults({**ISSUER, "rules": [*rules, RULE]}).values()
    assert "patterns in claims, all together" in message
