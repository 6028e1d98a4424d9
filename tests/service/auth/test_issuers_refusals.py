"""Signed tokens over HTTP: the service rejects a token before it calls any store, and gives no reason."""

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import pytest

from service.http.api_client import check_refused
from support.issuing import Issuer, SigningKey, claims, issuing, tampered, unsigned
from support.served import Served, served

OPAQUE = "tableside_a-configured-token"
RULES: list[dict[str, Any]] = [
    {"claims": {"sub": "all"}, "read": ["*"], "write": ["*"]},
    {"claims": {"sub": "reader"}, "read": ["t"]},
    {"claims": {"sub": "writer"}, "write": ["t"]},
    {"claims": {"sub": "elsewhere"}, "read": ["u"], "write": ["u"]},
]


@dataclass(frozen=True)
class Guarded:
    """A service, the issuer of the tokens used here, a second configured issuer, and one that is not configured."""

    service: Served
    client: httpx.AsyncClient
    ours: Issuer
    theirs: Issuer
    stranger: Issuer

    def token(self, subject: str = "all", **more: Any) -> str:
        return self.ours.token(sub=subject, **more)

    def refused(self, reason: str) -> float:
        return self.service.metric("tableside_unauthenticated_total", reason=reason)

    @property
    def asked(self) -> int:
        """The number of calls that reached the store, scans included."""
        return len(self.service.store.calls) + self.service.store.scans


@pytest.fixture(scope="module")
async def guarded() -> AsyncIterator[Guarded]:
    ours, theirs = SigningKey("same", "RSA"), SigningKey("same")
    with issuing(ours) as first, issuing(theirs) as second, issuing() as third:
        auth = {
            "tokens": [{"name": "configured", "sha256": sha256(OPAQUE.encode()).hexdigest(), "read": ["t"]}],
            "issuers": [first.settings(*RULES), second.settings({"claims": {"sub": "*"}, "read": ["t"]})],
        }
        async with served(auth=auth) as service, httpx.AsyncClient(base_url=service.url, timeout=30) as client:
            yield Guarded(service, client, first, second, third)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'anybody:{token}'.encode()).decode()}"}


LEEWAY_S = 30
RECORD = "/v1/tables/t/records/a"
OPERATIONS = [{"op": "get", "key": "a"}, {"op": "put", "key": "b", "value": {}}]
REQUESTS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", RECORD, None),
    "put": ("PUT", RECORD, {}),
    "batch": ("POST", "/v1/tables/t/batch", {"operations": OPERATIONS}),
    "scan": ("GET", "/v1/tables/t/records", None),
    "console": ("GET", "/console/tables/t", None),
}


async def ask(guarded: Guarded, name: str, headers: Mapping[str, str]) -> httpx.Response:
    method, path, document = REQUESTS[name]
    return await guarded.client.request(method, path, headers=headers, json=document)


# Accepted tokens


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_valid_token_is_accepted(guarded: Guarded, name: str) -> None:
    before = guarded.asked
    response = await ask(guarded, name, bearer(guarded.token()))
    assert response.status_code in (200, 204, 404)
    assert guarded.asked > before or name == "console"


async def test_a_signed_token_can_be_the_consoles_password(guarded: Guarded) -> None:
    assert (await ask(guarded, "console", basic(guarded.token()))).status_code == 200
    assert (await ask(guarded, "console", basic(guarded.token("elsewhere")))).status_code in (403, 404)
    assert (await ask(guarded, "get", basic(guarded.token()))).status_code == 401


async def test_configured_tokens_remain_valid(guarded: Guarded) -> None:
    assert (await ask(guarded, "get", bearer(OPAQUE))).status_code in (200, 404)
    assert (await ask(guarded, "put", bearer(OPAQUE))).status_code == 403
    before = guarded.refused("unknown")
    assert (await ask(guarded, "get", bearer(f"{OPAQUE}x"))).status_code == 401
    assert guarded.refused("unknown") == before + 1


# Rejected tokens


def hostile(guarded: Guarded) -> Iterator[tuple[str, str, str]]:
    """Yield invalid tokens: a description, the token, and the reason under which the service counts it."""
    given = claims(guarded.ours.url, sub="all")
    yield "wrong", "tableside_wrong", "unknown"
    yield "expired", guarded.token(exp=int(time.time()) - 60), "expired"
    yield "wrong audience", guarded.token(aud="other"), "audience"
    yield "alg none", unsigned(given, kid="same"), "algorithm"
    yield "a key of another issuer", guarded.theirs.key.signed(given), "key"
    yield "tampered", tampered(guarded.token("reader"), sub="all"), "signature"
    yield "jku", SigningKey("same", "RSA").signed(given, jku=guarded.stranger.jwks_url), "signature"
    yield "oversized", guarded.token(more="x" * 20_000), "too_long"


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_hostile_token_gets_the_response_for_no_token_before_any_store_call(
    guarded: Guarded, name: str
) -> None:
    without = await ask(guarded, name, {})
    check_refused(without, 401, "unauthenticated")
    asked, fetches = guarded.asked, [guarded.ours.fetches, guarded.theirs.fetches]
    for what, token, reason in hostile(guarded):
        counted = guarded.refused(reason)
        for headers in (bearer(token), *([basic(token)] if name == "console" else [])):
            response = await ask(guarded, name, headers)
            assert (response.status_code, response.content) == (401, without.content), what
            assert response.headers["WWW-Authenticate"] == without.headers["WWW-Authenticate"], what
        assert guarded.refused(reason) > counted, what
    assert guarded.asked == asked
    assert [guarded.ours.fetches, guarded.theirs.fetches] == fetches
    assert guarded.stranger.asked == []


async def test_a_known_token_is_rejected_once_it_has_expired(guarded: Guarded) -> None:
    token, before = bearer(guarded.token(exp=int(time.time()) - LEEWAY_S + 3)), guarded.refused("expired")
    assert (await ask(guarded, "get", token)).status_code in (200, 404)
    async with asyncio.timeout(30):
        while (await ask(guarded, "get", token)).status_code != 401:
            await asyncio.sleep(0.1)
    assert guarded.refused("expired") == before + 1


# While keys are unknown


@asynccontextmanager
async def guarded_by(issuer: Issuer, *rules: Mapping[str, Any]) -> AsyncIterator[tuple[Served, httpx.AsyncClient]]:
    async with (
        served(auth={"issuers": [issuer.settings(*rules)]}) as service,
        httpx.AsyncClient(base_url=service.url, timeout=30) as client,
    ):
        yield service, client


@pytest.fixture
def cool(monkeypatch: pytest.MonkeyPatch) -> float:
    """Shorten the minimum interval between two fetches of the keys, and return it."""
    monkeypatch.setattr("tableside.auth.key_source.FETCH_INTERVAL_MIN_S", 0.3)
    return 0.3


async def _answers(client: httpx.AsyncClient, token: str, status: int) -> None:
    """Repeat a get until the response has this status."""
    until = time.monotonic() + 20
    while (response := await client.get(RECORD, headers=bearer(token))).status_code != status:
        assert time.monotonic() < until, response.text


@pytest.mark.usefixtures("cool")
async def test_keys_can_change_while_it_serves() -> None:
    old, new = SigningKey("old"), SigningKey("new")
    with issuing(old) as issuer:
        async with guarded_by(issuer) as (service, client):
            before, after = issuer.token(), new.signed(claims(issuer.url))
            assert (await client.get(RECORD, headers=bearer(before))).status_code == 404
            check_refused(await client.get(RECORD, headers=bearer(after)), 401, "unauthenticated")
            assert service.metric("tableside_unauthenticated_total", reason="key") == 1
            issuer.keys.append(new.jwk())
            for token in (after, before):
                assert (await client.get(RECORD, headers=bearer(token))).status_code == 404
            issuer.keys = [new.jwk()]
            check_refused(await client.get(RECORD, headers=bearer(_unknown(issuer))), 401, "unauthenticated")
            assert (await client.get(RECORD, headers=bearer(after))).status_code == 404
            check_refused(await client.get(RECORD, headers=bearer(before)), 401, "unauthenticated")


def _unknown(issuer: Issuer) -> str:
    """Return a token with an unknown key, which causes another fetch of the keys."""
    return SigningKey("made-up").signed(claims(issuer.url))


async def test_requests_that_wait_for_keys_occupy_no_slot() -> None:
    with issuing() as issuer:
        async with guarded_by(issuer) as (service, client):
            await _answers(client, issuer.token(), 404)
            with pytest.raises(httpx.ReadTimeout):
                await client.get(RECORD, headers=bearer(_unknown(issuer)), timeout=0.3)
            assert service.under_way == (0, 0, 0)
