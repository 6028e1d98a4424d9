"""Gets the keys of an issuer, once: from where the configuration says, or from where the issuer's own document does.

Bounded in time and size, and no redirect is followed. Nothing that a token says has any part in it.
"""

import asyncio
import ssl
from pathlib import Path

import httpx
import msgspec

from .jwks import Keys, parsed
from .settings import checked_url, on_loopback

FETCH_S = 10.0
"""How long the keys of an issuer may take, with its document."""

ANSWER_BYTES_MAX = 512 * 1024
TOKEN_FILE_BYTES_MAX = 16 * 1024

DISCOVERY = "/.well-known/openid-configuration"


class Place(msgspec.Struct, frozen=True):
    """Where the keys of an issuer are, whom to trust there, and what to be known by."""

    issuer: str
    jwks_url: str | None = None
    ca_file: str | None = None
    token_file: str | None = None


class NotFetched(Exception):
    """The keys could not be fetched; the message is for the log, and has neither an answer nor a token in it."""


class _Discovered(msgspec.Struct):
    issuer: str
    jwks_uri: str


async def fetched(place: Place) -> Keys:
    """Return the keys as they are now. Raise NotFetched."""
    try:
        async with asyncio.timeout(FETCH_S), await asyncio.to_thread(_client, place) as client:
            return parsed(await _answer(client, place.jwks_url or await _discovered(client, place.issuer)))
    except TimeoutError:
        raise NotFetched(f"no answer within {FETCH_S:g} s") from None
    except httpx.RemoteProtocolError as error:
        told, _, _ = str(error).partition(":")  # and then what was answered, as it is
        raise NotFetched(f"{type(error).__name__}: {told}") from None
    except httpx.HTTPError as error:
        raise NotFetched(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        raise NotFetched(f"{type(error).__name__}: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise NotFetched("the answer is not what it should be: a JSON object with the right members") from None


def _client(place: Place) -> httpx.AsyncClient:
    """Return what asks. Files are read each time: they are exchanged while the service runs."""
    # Kubernetes has its keys as the first alone, and answers 406 to who asks for the second alone.
    headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
    if place.token_file is not None:
        headers["Authorization"] = f"Bearer {_token(place.token_file)}"
    verify = ssl.create_default_context(cafile=place.ca_file) if place.ca_file is not None else True
    return httpx.AsyncClient(headers=headers, verify=verify, timeout=FETCH_S, follow_redirects=False)


def _token(file: str) -> str:
    with Path(file).open("rb") as opened:
        token = opened.read(TOKEN_FILE_BYTES_MAX).strip()
    try:
        text = token.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or " " in text:
        raise NotFetched(f"{file} holds no token")
    return text


async def _discovered(client: httpx.AsyncClient, issuer: str) -> str:
    """Return where the issuer's own document says that its keys are."""
    document = msgspec.json.decode(await _answer(client, issuer.rstrip("/") + DISCOVERY), type=_Discovered)
    if document.issuer != issuer:
        raise NotFetched("the issuer's document is of another issuer")
    try:
        url = checked_url(document.jwks_uri)
    except ValueError:
        raise NotFetched("the issuer's document names a jwks_uri that is no https URL") from None
    if on_loopback(url) and not on_loopback(issuer):
        raise NotFetched("the issuer's document names a jwks_uri of this machine")
    return url


async def _answer(client: httpx.AsyncClient, url: str) -> bytes:
    """Return the body of an answer that is one, and not too long."""
    async with client.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise NotFetched(f"the answer has the status {response.status_code}")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise NotFetched("the answer is compressed, which was not asked for")
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > ANSWER_BYTES_MAX:
                raise NotFetched(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        return bytes(content)
