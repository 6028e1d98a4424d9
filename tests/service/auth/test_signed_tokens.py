"""The signed tokens that are accepted, and the reasons why others are rejected."""

import json
import time
from collections.abc import Sequence
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry

from support.issuing import SigningKey, claims, tampered, unsigned
from tableside.auth import Caller, KeysMissing, TokenRejected
from tableside.auth.key_source import IssuerMetrics, KeySource
from tableside.auth.keys import KeysLocation, parse_key_set
from tableside.auth.settings import IssuerSettings
from tableside.auth.signed_tokens import KID_LENGTH_MAX, TOKEN_BYTES_MAX, Verifier, verify_token

ID, OTHER = "https://id.example", "https://other.example"
RSA, P256, ED = SigningKey("rsa", "RSA"), SigningKey("p256"), SigningKey("ed", "Ed25519")
THEIRS = SigningKey("p256")
LEEWAY_S = 30


def verifier(issuer: str, keys: Sequence[dict[str, Any]] | None, **more: Any) -> Verifier:
    rule = {"claims": {"sub": "*"}, "read": ["*"]}
    data = {"issuer": issuer, "audience": "tableside", "leeway_s": LEEWAY_S, "rules": [rule], **more}
    source = KeySource(KeysLocation(issuer), 300, lambda: None, IssuerMetrics(CollectorRegistry()))
    source.keys = None if keys is None else parse_key_set(json.dumps({"keys": keys}).encode())
    return Verifier(IssuerSettings.model_validate(data), source)


VERIFIERS = {
    ID: [
        verifier(ID, [RSA.jwk(), P256.jwk(), ED.jwk()]),
        verifier(ID, [P256.jwk()], audience=["second", "third"], rules=[{"claims": {"sub": "*"}, "write": ["*"]}]),
    ],
    OTHER: [verifier(OTHER, [THEIRS.jwk()])],
    "https://new.example": [verifier("https://new.example", None)],
    "https://es.example": [verifier("https://es.example", [RSA.jwk(), P256.jwk()], algorithms=["ES256"])],
}


def of(token: str | bytes) -> Caller | None:
    return verify_token(token.encode() if isinstance(token, str) else token, VERIFIERS)


def reason(token: str | bytes) -> str:
    with pytest.raises(TokenRejected) as refused:
        of(token)
    assert refused.value.__cause__ is None
    assert str(refused.value) == refused.value.reason
    return refused.value.reason


def good(**more: Any) -> dict[str, Any]:
    """Return claims that are valid for a day, since some tokens are made long before they are used."""
    return claims(ID, **{"exp": int(time.time()) + 86400, **more})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [*((RSA, name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")), (P256, "ES256"), (ED, "EdDSA")],
    ids=lambda value: value if isinstance(value, str) else value.kid,
)
def test_a_token_signed_by_a_key_of_its_issuer_is_accepted(key: SigningKey, algorithm: str) -> None:
    made = good()
    found = of(key.signed(made, algorithm))
    assert found is not None
    assert (found.name, found.read, found.write, found.admin) == (f"{ID}#someone", ("*",), (), False)
    assert found.until == made["exp"] + LEEWAY_S


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_a_token_can_have_the_type_of_access_tokens(typ: str | None) -> None:
    assert of(P256.signed(good(), typ=typ)) is not None


@pytest.mark.parametrize(
    ("aud", "read"),
    [("tableside", True), (["x", "tableside"], True), (["third", "x"], False), (["second", "tableside"], True)],
)
def test_the_first_entry_with_an_audience_of_the_token_gives_its_permissions(aud: object, *, read: bool) -> None:
    found = of(P256.signed(good(aud=aud)))
    assert found is not None
    assert (found.read, found.write) == ((("*",), ()) if read else ((), ("*",)))


def test_clocks_may_be_apart_by_the_leeway() -> None:
    now = int(time.time())
    assert of(P256.signed(good(exp=now - LEEWAY_S + 10))) is not None
    assert of(P256.signed(good(iat=now + LEEWAY_S - 10, nbf=now + LEEWAY_S - 10))) is not None


def pem(key: SigningKey) -> bytes:
    found: bytes = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def with_secret(secret: bytes, algorithm: str = "HS256", kid: str = "rsa") -> str:
    """Return a token signed with the public key, as if that were a secret shared by both sides."""
    signer = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    unsealed = unsigned(good(), algorithm, kid=kid)
    made = signer.sign(unsealed.rstrip(".").encode(), secret)
    return unsealed + jwt.utils.base64url_encode(made).decode()


def now(after_s: float) -> int:
    return int(time.time() + after_s)


HOSTILE: dict[str, tuple[str, str]] = {
    "expired": (P256.signed(good(exp=now(-LEEWAY_S - 5))), "expired"),
    "not yet valid": (P256.signed(good(nbf=now(86400))), "not_yet_valid"),
    "issued in the future": (P256.signed(good(iat=now(86400))), "not_yet_valid"),
    "never expires": (P256.signed(good(exp=None)), "claims"),
    "expires at no time": (P256.signed(good(exp="soon")), "malformed"),
    "expires at infinity": (P256.signed(good(exp=float("inf"))), "malformed"),
    "subject is a number": (P256.signed(good(sub=7)), "claims"),
    "no subject": (P256.signed(good(sub=None)), "claims"),
    "other audience": (P256.signed(good(aud="other")), "audience"),
    "no audience": (P256.signed(good(aud=None)), "malformed"),
    "audience is part of another": (P256.signed(good(aud="tableside2")), "audience"),
    "audience in a list of lists": (P256.signed(good(aud=[["tableside"]])), "malformed"),
    "other issuer": (P256.signed(claims("https://evil.example")), "issuer"),
    "issuer with a slash": (P256.signed(claims(f"{ID}/")), "issuer"),
    "no issuer": (P256.signed(good(iss=None)), "malformed"),
    "alg none": (unsigned(good()), "algorithm"),
    "alg none with a kid": (unsigned(good(), kid="p256"), "algorithm"),
    "ES256 without a signature": (unsigned(good(), "ES256", kid="p256"), "signature"),
    "HS256 with the public key": (with_secret(pem(RSA)), "algorithm"),
    "a key of another issuer of the same name": (THEIRS.signed(good()), "signature"),
    "another issuer's token, changed": (tampered(THEIRS.signed(claims(OTHER)), iss=ID), "signature"),
    "changed subject": (tampered(P256.signed(good()), sub="root"), "signature"),
    "the kid of a key of another kind": (P256.signed(good(), kid="rsa"), "key"),
    "an algorithm that does not fit the key": (unsigned(good(), "ES384", kid="p256") + "c2ln", "key"),
    "an algorithm that is not set": (RSA.signed(claims("https://es.example")), "algorithm"),
    "a jwk in the header": (THEIRS.signed(good(), jwk=THEIRS.jwk()), "signature"),
    "a jku in the header": (THEIRS.signed(good(), jku="https://evil.example/keys"), "signature"),
    "an x5u in the header": (THEIRS.signed(good(), x5u="https://evil.example/certificate"), "signature"),
    "a critical header": (P256.signed(good(), crit=["exp"], exp=now(86400)), "malformed"),
    "a logout token": (P256.signed(good(), typ="logout+jwt"), "malformed"),
    "a long kid": (P256.signed(good(), kid="k" * (KID_LENGTH_MAX + 1)), "malformed"),
    "too long": (P256.signed(good(more="x" * TOKEN_BYTES_MAX)), "too_long"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_invalid_token_is_rejected(name: str) -> None:
    token, expected = HOSTILE[name]
    assert reason(token) == expected


GOOD = P256.signed(good())
HEAD, BODY, SIGNATURE = GOOD.split(".")


@pytest.mark.parametrize(
    "token",
    [
        "a.b.c",
        f"{HEAD}..{SIGNATURE}",
        f"{HEAD}.{BODY}x.{SIGNATURE}",
        f"{HEAD}.{BODY}.{SIGNATURE}=",
        f"{HEAD}.{BODY}.{SIGNATURE}\n",
        f"{HEAD}.{HEAD}.{SIGNATURE}",
        f"{HEAD[:-4]}.{BODY}.{SIGNATURE}",
        unsigned(good(), kid=7),
        b"\xff.\xff.\xff",
        *(f"{HEAD}.{jwt.utils.base64url_encode(text).decode()}.{SIGNATURE}" for text in (b"[" * 9000, b'{"a":' * 2000)),
        *(f"{jwt.utils.base64url_encode(text).decode()}.{BODY}.{SIGNATURE}" for text in (b"[" * 9000, b"null", b"7")),
    ],
    ids=lambda token: "",
)
def test_text_that_is_no_token_is_rejected(token: Any) -> None:
    assert reason(token) in ("malformed", "signature")


def test_the_length_is_checked_first_and_the_maximum_is_accepted() -> None:
    longest = P256.signed(good(more="x" * ((TOKEN_BYTES_MAX - len(GOOD)) * 3 // 4 - 20)))
    assert TOKEN_BYTES_MAX - 40 < len(longest) <= TOKEN_BYTES_MAX
    assert of(longest) is not None
    assert reason("." + "x" * TOKEN_BYTES_MAX + ".") == "too_long"


@pytest.mark.parametrize("token", ["", "x", "tableside_abc", f"{HEAD}.{BODY}", f"{GOOD}.{SIGNATURE}", "a.b.c.d.e"])
def test_text_without_the_form_of_a_signed_token_is_ignored(token: str) -> None:
    assert of(token) is None


def test_a_token_with_an_unknown_key_requests_a_refresh() -> None:
    with pytest.raises(KeysMissing):
        of(SigningKey("second").signed(good()))
    with pytest.raises(KeysMissing):
        of(P256.signed(claims("https://new.example")))


def test_a_token_without_a_key_name_requires_exactly_one_matching_key() -> None:
    one, two = SigningKey(None), SigningKey(None)
    alone = {ID: [verifier(ID, [one.jwk(), RSA.jwk()])]}
    both = {ID: [verifier(ID, [one.jwk(), two.jwk()])]}
    token = one.signed(good()).encode()
    assert verify_token(token, alone) is not None
    assert (
        verify_token(P256.signed(good(), kid=None).encode(), {ID: [verifier(ID, [P256.jwk(), RSA.jwk()])]}) is not None
    )
    with pytest.raises(TokenRejected, match="key"):
        verify_token(token, both)
    with pytest.raises(TokenRejected, match="key"):
        verify_token(RSA.signed(good(), kid=None).encode(), both)


def test_keys_with_the_same_name_are_distinguished_by_kind() -> None:
    ours, theirs = SigningKey("same", "RSA"), SigningKey("same")
    both = {ID: [verifier(ID, [ours.jwk(), theirs.jwk()])]}
    for key in (ours, theirs):
        assert verify_token(key.signed(good()).encode(), both) is not None
    twice = {ID: [verifier(ID, [theirs.jwk(), P256.jwk(kid="same")])]}
    with pytest.raises(TokenRejected, match="key"):
        verify_token(theirs.signed(good()).encode(), twice)


# Random tokens

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OF_A_HEADER = ("alg", "kid", "typ", "crit", "b64", "jku", "jwk", "zip", "enc")
OF_CLAIMS = ("iss", "aud", "exp", "nbf", "iat", "sub", "jti")


def is_accepted(token: bytes) -> bool:
    """Return whether a token is accepted. Any other exception than a rejection fails the test."""
    try:
        return of(token) is not None
    except (TokenRejected, KeysMissing):
        return False


@given(st.binary(max_size=300) | st.text(alphabet="aA0-_=.{}", max_size=200).map(str.encode))
def test_random_bytes_are_never_accepted(token: bytes) -> None:
    assert not is_accepted(token)


@given(st.dictionaries(st.sampled_from(OF_A_HEADER), JSON, max_size=4), st.binary(max_size=80))
def test_an_unsigned_token_with_any_header_is_never_accepted(header: dict[str, Any], signature: bytes) -> None:
    token = unsigned(good(), **{"alg": "ES256", "kid": "p256", **header})
    assert not is_accepted(token.encode() + jwt.utils.base64url_encode(signature))


@given(st.dictionaries(st.sampled_from(OF_CLAIMS), JSON, min_size=1, max_size=3))
def test_any_signed_claims_are_accepted_or_rejected(changed: dict[str, Any]) -> None:
    body = json.dumps({**good(), **changed}).encode()
    signed = jwt.api_jws.PyJWS().encode(body, P256.private, "ES256", {"kid": "p256"})
    if is_accepted(signed.encode()):
        assert changed.get("iss", ID) == ID
        assert isinstance(changed.get("sub", "someone"), str)
        assert changed.get("exp", 1) is not None
