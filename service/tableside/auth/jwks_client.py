"""Fetch the keys of an issuer: from the configured URL, or from the one in the issuer's discovery document.

A fetch is limited in time and size, and follows no redirects. It uses nothing from a token.
"""

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import msgspec

from ..core import environment_proxy
from .jwks import PublicKeySet, parse_key_set
from .settings import checked_url, is_loopback

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
    """Fetch the keys. Raise FetchFailed."""
    try:
        async with asyncio.timeout(FETCH_TIMEOUT_S), await asyncio.to_thread(_client, location) as client:
            return parse_key_set(await _get(client, location.jwks_url or await _discover(client, location.issuer)))
    except TimeoutError:
        raise FetchFailed(f"no response within {FETCH_TIMEOUT_S:g} s") from None
    except httpx.RemoteProtocolError as error:
        reason, _, _ = str(error).partition(":")  # the response itself follows the colon
        raise FetchFailed(f"{type(error).__name__}: {reason}") from None
    except httpx.HTTPError as error:
        raise FetchFailed(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        raise FetchFailed(f"{type(error).__name__}: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise FetchFailed("the response is not a JSON object with the expected members") from None


def _client(location: KeysLocation) -> httpx.AsyncClient:
    """Return the HTTP client. Files are read for every fetch because they may be replaced while the service runs."""
    # Kubernetes serves its keys only as the first type, and responds 406 if only the second is accepted.
    headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
    if location.token_file is not None:
        headers["Authorization"] = f"Bearer {_token(location.token_file)}"
    default = location.ca_file is None
    tls = httpx.create_ssl_context() if default else ssl.create_default_context(cafile=location.ca_file)
    return httpx.AsyncClient(
        headers=headers, transport=_Transport(tls), timeout=FETCH_TIMEOUT_S, follow_redirects=False
    )


class _Transport(httpx.AsyncBaseTransport):
    """Sends a request through the proxy that the environment names for its URL, if any. Its errors name the proxy."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._opened = AsyncExitStack()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxy = environment_proxy(str(request.url))
        try:
            transport = httpx.AsyncHTTPTransport(verify=self._tls, proxy=None if proxy is None else proxy.url)
        except (ImportError, ValueError, httpx.InvalidURL):  # also SOCKS without its package
            raise FetchFailed(f"{proxy} cannot be used") from None
        self._opened.push_async_callback(transport.aclose)
        try:
            return await transport.handle_async_request(request)
        except httpx.TransportError as error:
            if proxy is None:
                raise
            raise FetchFailed(f"{type(error).__name__}: {error}, through {proxy}") from error

    async def aclose(self) -> None:
        await self._opened.aclose()


def _token(file: str) -> str:
    with Path(file).open("rb") as opened:
        token = opened.read(TOKEN_FILE_BYTES_MAX).strip()
    try:
        text = token.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise FetchFailed(f"{file} contains no token")
    return text


async def _discover(client: httpx.AsyncClient, issuer: str) -> str:
    """Return the URL of the keys from the issuer's discovery document."""
    document = msgspec.json.decode(await _get(client, issuer.rstrip("/") + DISCOVERY), type=_DiscoveryDocument)
    if document.issuer != issuer:
        raise FetchFailed("the issuer's document names another issuer")
    try:
        url = checked_url(document.jwks_uri)
    except ValueError:
        raise FetchFailed("the issuer's document names a jwks_uri that is not an https URL") from None
    if is_loopback(url) and not is_loopback(issuer):
        raise FetchFailed("the issuer's document names a jwks_uri on this machine")
    return url


async def _get(client: httpx.AsyncClient, url: str) -> bytes:
    """Return the body of a response with status 200 that is not compressed and not too long."""
    async with client.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise FetchFailed(f"the response has status {response.status_code}")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise FetchFailed("the response is compressed, which was not requested")
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > RESPONSE_BYTES_MAX:
                raise FetchFailed(f"the response is longer than {RESPONSE_BYTES_MAX} bytes")
        return bytes(content)
