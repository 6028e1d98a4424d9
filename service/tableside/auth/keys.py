"""Fetch the public keys of an issuer (JWKS, RFC 7517), and find the algorithms that each may verify.

The members `kty`, `alg`, `use` and `key_ops` of a key are respected. Keys that must not verify tokens are skipped:
shared secrets, keys for encryption, RSA keys that are too short or too long, and keys with a private part.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from jwt.algorithms import AllowedPublicKeys

from ..core import environment_proxy, pem
from .settings import checked_url, is_loopback

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


class PublicKeySet(msgspec.Struct, frozen=True):
    """The keys of an issuer from one fetch. Equal `content`, the response, means that they did not change."""

    keys: Sequence[PublicKey]
    content: bytes


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


FETCH_TIMEOUT_S = 10.0
"""Time limit of a fetch, including the discovery document."""

RESPONSE_BYTES_MAX = 512 * 1024
TOKEN_FILE_BYTES_MAX = 16 * 1024
DISCOVERY = "/.well-known/openid-configuration"


class KeysLocation(msgspec.Struct, frozen=True):
    """The location of an issuer's keys, the CA file to verify the server, and the token file to authenticate with."""

    issuer: str
    jwks_url: str | None = None
    ca_file: str | None = None
    token_file: str | None = None


class FetchFailed(Exception):
    """The keys could not be fetched. The message is for the log. It does not contain a response or a token."""


class _DiscoveryDocument(msgspec.Struct):
    issuer: str
    jwks_uri: str


async def fetch_keys(location: KeysLocation) -> PublicKeySet:
    """Fetch the keys from the configured URL, or from the one in the issuer's discovery document. Raise FetchFailed.

    A fetch is limited in time and size, and follows no redirects. It uses nothing from a token.
    """
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            headers, tls = await asyncio.to_thread(_read_files, location)
            url = location.jwks_url
            if url is None:
                document = await _get(location.issuer.rstrip("/") + DISCOVERY, headers, tls)
                url = _keys_url(location.issuer, msgspec.json.decode(document, type=_DiscoveryDocument))
            return parse_key_set(await _get(url, headers, tls))
    except TimeoutError:
        raise FetchFailed(f"no response within {FETCH_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise FetchFailed(f"{type(error).__name__}: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise FetchFailed("the response is not a JSON object with the expected members") from None


def _read_files(location: KeysLocation) -> tuple[dict[str, str], ssl.SSLContext]:
    """Return the headers and the TLS context, from files that may be replaced while the service runs."""
    # Kubernetes serves its keys only as the first type, and responds 406 if only the second is accepted.
    headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
    if location.token_file is not None:
        with Path(location.token_file).open("rb") as file:
            token = file.read(TOKEN_FILE_BYTES_MAX).strip()
        if not re.fullmatch(rb"[\x21-\x7e]+", token):
            raise FetchFailed(f"{location.token_file} contains no token")
        headers["Authorization"] = f"Bearer {token.decode()}"
    if location.ca_file is None:
        return headers, httpx.create_ssl_context()
    try:
        return headers, ssl.create_default_context(cafile=location.ca_file)
    except ssl.SSLError as error:
        raise FetchFailed(pem.authorities_fault(location.ca_file, error)) from None


def _keys_url(issuer: str, document: _DiscoveryDocument) -> str:
    if document.issuer != issuer:
        raise FetchFailed("the issuer's document names another issuer")
    try:
        url = checked_url(document.jwks_uri)
    except ValueError:
        raise FetchFailed("the issuer's document names a jwks_uri that is not an https URL") from None
    if is_loopback(url) and not is_loopback(issuer):
        raise FetchFailed("the issuer's document names a jwks_uri on this machine")
    return url


async def _get(url: str, headers: Mapping[str, str], tls: ssl.SSLContext) -> bytes:
    """Return the body of a response, through the environment's proxy for the URL, which errors name."""
    proxy = environment_proxy(url)
    through = "" if proxy is None else f", through {proxy}"
    try:
        proxy_url = proxy.url if proxy else None
        client = httpx.AsyncClient(verify=tls, proxy=proxy_url, trust_env=False, timeout=FETCH_TIMEOUT_S)
    except (ImportError, ValueError, httpx.InvalidURL):  # also SOCKS without its package
        raise FetchFailed(f"{proxy} cannot be used") from None
    content = bytearray()
    try:
        async with client, client.stream("GET", url, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise FetchFailed(f"the response has status {response.status_code}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise FetchFailed("the response is compressed, which was not requested")
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > RESPONSE_BYTES_MAX:
                    raise FetchFailed(f"the response is longer than {RESPONSE_BYTES_MAX} bytes")
    except httpx.RemoteProtocolError as error:
        reason, _, _ = str(error).partition(":")  # the response itself follows the colon
        raise FetchFailed(f"{type(error).__name__}: {reason}{through}") from None
    except httpx.HTTPError as error:
        raise FetchFailed(f"{type(error).__name__}: {error}{through}") from error
    return bytes(content)
