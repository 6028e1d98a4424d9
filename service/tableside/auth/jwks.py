"""The public keys of an issuer (JWKS, RFC 7517), and the algorithms that each may verify.

The members `kty`, `alg`, `use` and `key_ops` of a key are respected. Keys that must not verify tokens are skipped:
shared secrets, keys for encryption, RSA keys that are too short or too long, and keys with a private part.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from jwt.algorithms import AllowedPublicKeys

KEYS_MAX = 100
"""Maximum number of keys of a response that are parsed. Further ones are ignored."""

RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}


class PublicKey(msgspec.Struct, frozen=True):
    """One key: its ID, if it has one, and the algorithms that it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    public: AllowedPublicKeys


class PublicKeySet:
    """The keys of an issuer from one fetch."""

    def __init__(self, keys: Sequence[PublicKey], content: bytes = b"") -> None:
        self._keys = tuple(keys)
        self.content = content
        """The response that the keys were parsed from. Equal content means that the keys did not change."""

    def __len__(self) -> int:
        return len(self._keys)

    def with_kid(self, kid: str) -> list[PublicKey]:
        """Return the keys with this ID: usually one or none, and several only if their types differ."""
        return [key for key in self._keys if key.kid == kid]

    def for_algorithm(self, algorithm: str) -> list[PublicKey]:
        """Return the keys that may verify signatures of this algorithm."""
        return [key for key in self._keys if algorithm in key.algorithms]


class _Set(msgspec.Struct):
    keys: list[Any]


def parse_key_set(content: bytes) -> PublicKeySet:
    """Parse a JWK set, which may contain no usable key. Raise ValueError if it is not a JWK set."""
    try:
        given = msgspec.json.decode(content, type=_Set).keys
    except RecursionError:
        raise ValueError("is nested too deep") from None
    found = [_key(each) for each in given[:KEYS_MAX] if isinstance(each, dict)]
    return PublicKeySet([key for key in found if key is not None], content)


def _key(jwk: Mapping[str, Any]) -> PublicKey | None:
    """Return the key, or None if it must not verify tokens."""
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
    return PublicKey(kid, frozenset(algorithms), public)


def _algorithms(jwk: Mapping[str, Any]) -> Sequence[str]:
    """Return the algorithms that the key may verify, by its type and members, or none if it is not for verification."""
    operations = jwk.get("key_ops", ["verify"])
    if "d" in jwk or jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not (curve is None or isinstance(curve, str)):
        return ()
    fitting = _RSA if kind == "RSA" else _BY_CURVE.get((kind, curve or ""), ())
    return tuple(name for name in fitting if jwk.get("alg", name) == name)
