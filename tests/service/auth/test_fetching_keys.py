"""Keys are fetched from the configured address, and a malformed response is rejected."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.process import free_port
from support.certificates import Authority
from support.issuing import Issuer, SigningKey, issuing
from tableside.auth import keys
from tableside.auth.keys import RESPONSE_BYTES_MAX, FetchFailed, KeysLocation, fetch_keys

DISCOVERY = "/.well-known/openid-configuration"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


def place(issuer: Issuer, **more: Any) -> KeysLocation:
    return KeysLocation(**{"issuer": issuer.url, "jwks_url": issuer.jwks_url, **more})


async def why(where: KeysLocation) -> str:
    with pytest.raises(FetchFailed) as refused:
        await fetch_keys(where)
    return str(refused.value)


async def test_keys_are_fetched_from_the_url_that_is_set(issuer: Issuer) -> None:
    keys = await fetch_keys(place(issuer))
    assert [key.kid for key in keys.keys] == ["first"]
    assert [path for path, _ in issuer.asked] == ["/keys"]
    assert "authorization" not in issuer.asked[0][1]


async def test_keys_are_found_by_the_discovery_document(issuer: Issuer) -> None:
    assert len((await fetch_keys(place(issuer, jwks_url=None))).keys) == 1
    assert [path for path, _ in issuer.asked] == [DISCOVERY, "/keys"]


async def test_an_issuer_with_a_path_has_its_document_below_it(issuer: Issuer) -> None:
    for path in ("/realms/a", "/realms/b/"):
        document = {"issuer": issuer.url + path, "jwks_uri": issuer.jwks_url}
        issuer.answers[path.rstrip("/") + DISCOVERY] = 200, {}, json.dumps(document).encode()
        assert len((await fetch_keys(KeysLocation(issuer.url + path))).keys) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example", "jwks_uri": "{url}/keys"},
        {"issuer": "{url}/", "jwks_uri": "{url}/keys"},
        {"jwks_uri": "{url}/keys"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": 7},
        {"issuer": "{url}", "jwks_uri": ""},
        {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "{url}", "jwks_uri": "http://id.example/keys"},
        {"issuer": "{url}", "jwks_uri": "https://user:secret@127.0.0.1/keys"},
        [],
    ],
    ids=range(10),
)
async def test_a_discovery_document_of_another_issuer_or_with_an_unsafe_url_is_rejected(
    issuer: Issuer, document: Any
) -> None:
    issuer.answers[DISCOVERY] = 200, {}, json.dumps(document).replace("{url}", issuer.url).encode()
    told = await why(place(issuer, jwks_url=None))
    assert issuer.fetches == 0
    assert "secret" not in told


def test_an_issuer_elsewhere_cannot_point_at_this_machine() -> None:
    def found(jwks_uri: str) -> str:
        return keys._keys_url("https://id.example", keys._DiscoveryDocument("https://id.example", jwks_uri))

    assert found("https://keys.example/keys") == "https://keys.example/keys"
    for url in ("http://127.0.0.1:9/keys", "https://localhost/keys", "https://[::1]/keys"):
        with pytest.raises(FetchFailed, match="this machine"):
            found(url)


async def test_a_redirect_is_not_followed(issuer: Issuer) -> None:
    with issuing() as other:
        issuer.answers["/keys"] = 302, {"Location": other.jwks_url}, b""
        assert await why(place(issuer)) == "the response has status 302"
        issuer.answers[DISCOVERY] = 307, {"Location": other.url + DISCOVERY}, b""
        assert await why(place(issuer, jwks_url=None)) == "the response has status 307"
        assert other.asked == []


SET = b'{"keys": []}'


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, {}, SET), "status 404"),
        ((500, {}, SET), "status 500"),
        ((204, {}, b""), "status 204"),
        ((200, {}, b"<html>"), "not a JSON object with"),
        ((200, {}, b'{"keys": '), "not a JSON object with"),
        ((200, {}, b"[" * 100_000), "not a JSON object with"),
        ((200, {"Content-Encoding": "gzip"}, SET), "compressed"),
        ((200, {}, SET + b" " * RESPONSE_BYTES_MAX), "longer than"),
        ((200, {"Content-Length": "20"}, SET), "ProtocolError"),
    ],
)
async def test_an_invalid_response_is_rejected(
    issuer: Issuer, answer: tuple[int, dict[str, str], bytes], message: str
) -> None:
    issuer.answers["/keys"] = answer
    assert message in await why(place(issuer))


async def test_an_error_about_invalid_http_does_not_show_the_response(issuer: Issuer) -> None:
    issuer.answers["/keys"] = 200, {"Set-Cookie secret\x01": "secret"}, SET
    assert await why(place(issuer)) == "RemoteProtocolError: illegal header line"


async def test_a_response_is_limited_in_size(issuer: Issuer) -> None:
    issuer.answers["/keys"] = 200, {}, SET + b" " * (RESPONSE_BYTES_MAX - len(SET))
    assert len((await fetch_keys(place(issuer))).keys) == 0


async def test_a_fetch_from_a_slow_issuer_times_out(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "FETCH_TIMEOUT_S", 0.2)
    issuer.slow_s = 1.0
    began = time.monotonic()
    assert "no response" in await why(place(issuer)) or "Timeout" in await why(place(issuer))
    assert time.monotonic() - began < 1.0


async def test_an_unreachable_issuer_is_reported(issuer: Issuer) -> None:
    assert "ConnectError" in await why(KeysLocation("x", f"http://127.0.0.1:{free_port()}/keys"))
    issuer.away = True
    assert "ProtocolError" in await why(place(issuer))


async def test_an_issuer_on_this_machine_is_asked_without_the_proxy_and_an_error_names_the_proxy(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", f"http://user:hidden-password@{proxy}")
    monkeypatch.setenv("no_proxy", "[::1],fd00::/8")
    assert len((await fetch_keys(place(issuer, jwks_url=None))).keys) == 1
    found = await why(KeysLocation("x", "http://issuer.example/keys"))
    assert found.startswith("ConnectError: ")
    assert found.endswith(f", through the proxy {proxy} of http_proxy (NO_PROXY names the hosts without a proxy)")
    assert "the proxy 127.0.0.1:1 of ALL_PROXY" in await why(KeysLocation("x", "https://issuer.example/keys"))


async def test_the_request_accepts_the_media_type_of_kubernetes(issuer: Issuer) -> None:
    # Kubernetes responds with 406 unless the request accepts `application/jwk-set+json`.
    await fetch_keys(place(issuer))
    [(_, headers)] = issuer.asked
    assert headers["accept"].split(", ") == ["application/jwk-set+json", "application/json"]


async def test_the_current_token_of_the_file_is_sent(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    for token in ("one", "two"):
        file.write_text(f"{token}\n")
        await fetch_keys(place(issuer, token_file=str(file)))
    assert [headers["authorization"] for _, headers in issuer.asked] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"s3cret s3cret", b"s3cret\r\nHost: x", b"s3cret\xff"])
async def test_a_token_that_cannot_be_sent_is_not_shown(issuer: Issuer, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    told = await why(place(issuer, token_file=str(file)))
    assert "s3cret" not in told
    assert issuer.asked == []


async def test_over_tls_only_trusted_authorities_are_accepted(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    pair = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with issuing(SigningKey("first"), context=context) as issuer:
        assert len((await fetch_keys(place(issuer, ca_file=str(authority.certificate)))).keys) == 1
        assert len((await fetch_keys(place(issuer, ca_file=str(authority.certificate), jwks_url=None))).keys) == 1
        assert "certificate verify failed" in (await why(place(issuer, ca_file=str(other.certificate)))).lower()
        assert "certificate verify failed" in (await why(place(issuer))).lower()
        assert "FileNotFoundError" in await why(place(issuer, ca_file=str(tmp_path / "none.pem")))
        (tmp_path / "empty.pem").write_text("")
        assert "contains no certificate" in await why(place(issuer, ca_file=str(tmp_path / "empty.pem")))
