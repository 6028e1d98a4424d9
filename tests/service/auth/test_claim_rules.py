"""The permissions and the caller name that the claims of a token give."""

import re
from typing import Any

import pytest

from tableside.auth.settings import IssuerSettings
from tableside.auth.signed_tokens import ClaimRules, caller_name

ID = "https://id.example"


def rules(*given: dict[str, Any], **more: Any) -> ClaimRules:
    data = {"issuer": ID, "audience": "tableside", "rules": list(given), **more}
    return ClaimRules(IssuerSettings.model_validate(data))


def matches(wanted: dict[str, Any], claims: dict[str, Any]) -> bool:
    found = rules({"claims": wanted, "read": ["t"]}).apply({"sub": "s", **claims}, 0)
    assert found is not None
    assert found.read in ((), ("t",))
    return found.read == ("t",)


@pytest.mark.parametrize(
    ("wanted", "claims", "expected"),
    [
        ({"sub": "*"}, {}, True),
        ({"sub": "S"}, {}, False),
        ({"sub": "s"}, {"sub": "s2"}, False),
        ({"sub": "s*"}, {"sub": "s2"}, True),
        ({"sub": "?[0-9]"}, {"sub": "s2"}, True),
        ({"sub": "s", "team": "a"}, {"team": "b"}, False),
        ({"sub": "s", "team": "a"}, {"team": "a"}, True),
        ({"groups": "admins"}, {"groups": ["users", "admins"]}, True),
        ({"groups": ["x", "adm*"]}, {"groups": ["users", "admins"]}, True),
        ({"groups": "admins"}, {"groups": []}, False),
        ({"groups": "*"}, {"groups": [["admins"], {"admins": "admins"}, 7, None, True]}, False),
        ({"groups": "*"}, {}, False),
        ({"n": "*"}, {"n": 7}, False),
        ({"n": "*"}, {"n": None}, False),
        ({"realm.roles": "etl"}, {"realm": {"roles": ["etl"]}}, True),
        ({"realm.roles": "etl"}, {"realm.roles": ["etl"]}, False),
        ({"realm.roles": "etl"}, {"realm": [{"roles": "etl"}]}, False),
        ({"kubernetes.io.namespace": "jobs"}, {"kubernetes.io": {"namespace": "jobs"}}, False),
        ({"/kubernetes.io/namespace": "jobs"}, {"kubernetes.io": {"namespace": "jobs"}}, True),
        ({"/https:~1~1x.example~1roles": "etl"}, {"https://x.example/roles": ["etl"]}, True),
        ({"/a~01b": "x"}, {"a~1b": "x"}, True),
        ({"/0": "s"}, {}, False),
    ],
)
def test_a_rule_matches_when_each_of_its_claims_has_a_text_that_fits(
    wanted: dict[str, Any],
    claims: dict[str, Any],
    expected: bool,
) -> None:
    assert matches(wanted, claims) is expected


def test_a_pattern_that_could_backtrack_a_lot_is_matched_quickly() -> None:
    assert not matches({"sub": "*a" * 90 + "b"}, {"sub": "a" * 10_000})


def applied(rules: ClaimRules, **claims: Any) -> tuple[object, ...]:
    found = rules.apply(claims, 5)
    assert found is not None
    return found.name, found.read, found.write, found.admin, found.until


def test_permissions_are_the_union_of_matching_rules() -> None:
    found = rules(
        {"claims": {"sub": "*"}, "read": ["a", "b"]},
        {"claims": {"team": "x"}, "read": ["b", "c"], "write": ["c"]},
        {"claims": {"team": "y"}, "read": ["d"], "write": ["d"], "admin": True},
    )
    assert applied(found, sub="s") == (f"{ID}#s", ("a", "b"), (), False, 5)
    assert applied(rules({"claims": {"team": "x"}, "read": ["*"]}), sub="s") == (f"{ID}#s", (), (), False, 5)
    named = rules({"claims": {"sub": "*"}}, name_claim="/kubernetes.io/pod")
    assert applied(named, sub="s", **{"kubernetes.io": {"pod": "etl 1"}})[0] == f"{ID}#etl%201"
    assert applied(found, sub="s", team="x") == (f"{ID}#s", ("a", "b", "c"), ("c",), False, 5)
    assert applied(found, sub="s", team=["x", "y"]) == (f"{ID}#s", ("a", "b", "c", "d"), ("c", "d"), True, 5)


@pytest.mark.parametrize("claims", [{}, {"sub": ""}, {"sub": 7}, {"sub": ["s"]}, {"sub": None}, {"name": "s"}])
def test_a_token_without_a_name_has_no_caller(claims: dict[str, Any]) -> None:
    assert rules({"claims": {"sub": "*"}, "read": ["*"]}).apply(claims, 5) is None


CONFIGURED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:/-]{0,127}")
SUBJECTS = [
    "etl",
    "system:serviceaccount:jobs:etl",
    "auth0|5f7c8ec7c33c6c004bbafe82",
    "etl\n",
    "etl#x",
    "\ud800",
    "x" * 200,
    "x" * 200 + "y",
    "x" * 5000 + "y",
    "\x00",
]


def test_the_name_of_a_caller_is_unique_across_subjects_issuers_and_tokens() -> None:
    names = [caller_name(issuer, subject) for issuer in (ID, f"{ID}/", "https://b.example") for subject in SUBJECTS]
    assert len(set(names)) == len(names)
    assert not any(CONFIGURED.fullmatch(name) for name in names)
    for name in names:
        assert re.fullmatch(r"[\x21-\x7e]{1,300}", name)
        assert name.count("#") == 1
