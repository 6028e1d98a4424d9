"""The public keys of an issuer (JWKS, RFC 7517), and which of them a token may be signed with.

Of a key's own words `kty`, `alg`, `use` and `key_ops` are obeyed. What cannot verify a token is passed over: secrets
that both sides know, keys for encryption, short ones, and keys whose private half is published.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from jwt.algorithms import AllowedPublicKeys

KEYS_MAX = 100
"""How many keys of an answer are looked at."""

RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}


class Key(msgspec.Struct, frozen=True):
    """One key: its name, if it has one, and what it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    public: AllowedPublicKeys


class Keys:
    """The keys of an issuer as they were fetched."""

    def __init__(self, keys: Sequence[Key], content: bytes = b"") -> None:
        self._keys = tuple(keys)
        self.content = content
        """What they were made of: the same again is no change."""

    def __len__(self) -> int:
        return len(self._keys)

    def named(self, kid: str) -> list[Key]:
        """Return the keys of that name: mostly one or none, and several only of different kinds."""
        return [key for key in self._keys if key.kid == kid]

    def fitting(self, algorithm: str) -> list[Key]:
        """Return the keys that may verify what is signed so, whatever their names are."""
        return [key for key in self._keys if algorithm in key.algorithms]


class _Set(msgspec.Struct):
    keys: list[Any]


def parsed(content: bytes) -> Keys:
    """Return the keys in a JWK set. Raise ValueError if it is none; one without a key of use is one."""
    try:
        given = msgspec.json.decode(content, type=_Set).keys
    except RecursionError:
        raise ValueError("is nested too deep") from None
    found = [_key(each) for each in given[:KEYS_MAX] if isinstance(each, dict)]
    return Keys([key for key in found if key is not None], content)


def _key(jwk: Mapping[str, Any]) -> Key | None:
    """Return a key that can verify something, else None."""
    algorithms = _algorithms(jwk)
    kid = jwk.get("kid")
    if not algorithms or not (kid is None or isinstance(kid, str)):
        return None
    try:
        public = PyJWK(dict(jwk), algorithm=algorithms[0]).key
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    if isinstance(public, RSAPublicKey) and not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
        return None
    return Key(kid, frozenset(algorithms), public)


def _algorithms(jwk: Mapping[str, Any]) -> Sequence[str]:
    """Return what the key may verify by its kind and by its own words; nothing if it is not for that."""
    operations = jwk.get("key_ops", ["verify"])
    if "d" in jwk or jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not (curve is None or isinstance(curve, str)):
        return ()
    fitting = _RSA if kind == "RSA" else _BY_CURVE.get((kind, curve or ""), ())
    return tuple(name for name in fitting if jwk.get("alg", name) == name)
