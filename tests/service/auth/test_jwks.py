"""The keys of an issuer that can verify a token, and their algorithms."""

import json
from typing import Any

import pytest

from support.issuing import SigningKey
from tableside.auth.keys import KEYS_MAX, parse_key_set

RSA = SigningKey("rsa", "RSA")
P256 = SigningKey("p256")
RSA_ALGORITHMS = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


def algorithms(*jwks: object) -> list[set[str]]:
    """Return the algorithms of each key that the parser keeps."""
    found = parse_key_set(json.dumps({"keys": jwks}).encode())
    return [set(key.algorithms) for key in found.keys]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (RSA, RSA_ALGORITHMS),
        (P256, {"ES256"}),
        (SigningKey("p384", "P-384"), {"ES384"}),
        (SigningKey("p521", "P-521"), {"ES512"}),
        (SigningKey("25519", "Ed25519"), {"EdDSA"}),
        (SigningKey("448", "Ed448"), {"EdDSA"}),
    ],
    ids=lambda value: getattr(value, "kid", ""),
)
def test_a_key_verifies_the_algorithms_of_its_kind(key: SigningKey, expected: set[str]) -> None:
    assert algorithms(key.jwk()) == [expected]
    assert algorithms(key.jwk(use=None)) == [expected]
    assert algorithms(key.jwk(key_ops=["verify"])) == [expected]


def test_a_key_with_an_algorithm_verifies_only_this_one() -> None:
    assert algorithms(RSA.jwk(alg="PS384")) == [{"PS384"}]
    assert algorithms(P256.jwk(alg="ES256")) == [{"ES256"}]


@pytest.mark.parametrize(
    "jwk",
    [
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "a", "alg": "HS256"},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "a", "alg": "RS256"},
        RSA.jwk(use="enc"),
        RSA.jwk(key_ops=["encrypt"]),
        RSA.jwk(key_ops="verify"),
        RSA.jwk(alg="RSA-OAEP"),
        RSA.jwk(alg="ES256"),
        RSA.jwk(alg="HS256"),
        RSA.jwk(alg="none"),
        RSA.jwk(alg=7),
        RSA.jwk(alg=["RS256"]),
        RSA.jwk(n=None),
        RSA.jwk(n="===="),
        RSA.jwk(n=7),
        RSA.jwk(e="AA"),
        RSA.jwk(kid=7),
        RSA.jwk(kty=["RSA"]),
        RSA.jwk(kty=None),
        RSA.jwk(private=True),
        P256.jwk(private=True),
        P256.jwk(alg="ES384"),
        P256.jwk(crv="P-384"),
        P256.jwk(crv="secp256k1"),
        P256.jwk(crv=None),
        P256.jwk(crv={}),
        P256.jwk(x="AAAA"),
        SigningKey("short", "RSA", 1024).jwk(),
        SigningKey("448", "Ed448").jwk(crv="X448"),
        "a key",
        None,
        [],
        {},
    ],
    ids=lambda jwk: "",
)
def test_unsafe_keys_are_ignored(jwk: Any) -> None:
    assert algorithms(jwk, P256.jwk()) == [{"ES256"}]


def test_the_largest_key_is_bounded() -> None:
    huge = RSA.jwk(n="f" * (16384 // 6))
    assert algorithms(huge) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"keys": {}}', b'{"keys": 7}', b'{"keys": [', b"\xff", b'{"keys":' + b"[" * 100_000],
)
def test_an_invalid_key_set_is_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_key_set(content)


def test_an_empty_key_set_is_valid_and_the_number_of_keys_is_limited() -> None:
    assert len(parse_key_set(b'{"keys": []}').keys) == 0
    assert len(algorithms(*[P256.jwk()] * (KEYS_MAX + 5))) == KEYS_MAX
