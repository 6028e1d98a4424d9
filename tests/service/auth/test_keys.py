"""Keys are fetched from the configured address, and unsafe keys and malformed responses are rejected."""

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
from tableside.auth.keys import KEYS_MAX, RESPONSE_BYTES_MAX, FetchFailed, KeysLocation, fetch_keys, parse_key_set

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
        {"jwks_uri": "{url}/keys"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "{url}", "jwks_uri": "http://id.example/keys"},
        {"issuer": "{url}", "jwks_uri": "https://user:secret@127.0.0.1/keys"},
        [],
    ],
    ids=range(7),
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
        ((200, {}, b"<html>"), "not a JSON object with"),
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


# The keys that can verify a token, and their algorithms

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
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "a", "alg": "RS256"},
        RSA.jwk(use="enc"),
        RSA.jwk(key_ops=["encrypt"]),
        RSA.jwk(alg="ES256"),
        RSA.jwk(alg="HS256"),
        RSA.jwk(alg="none"),
        RSA.jwk(n="===="),
        RSA.jwk(n="f" * (16384 // 6)),
        RSA.jwk(e="AA"),
        RSA.jwk(kid=7),
        RSA.jwk(kty=None),
        RSA.jwk(private=True),
        P256.jwk(private=True),
        P256.jwk(crv="P-384"),
        P256.jwk(crv="secp256k1"),
        P256.jwk(x="AAAA"),
        SigningKey("short", "RSA", 1024).jwk(),
        SigningKey("448", "Ed448").jwk(crv="X448"),
        "a key",
        [],
    ],
    ids=lambda jwk: "",
)
def test_unsafe_keys_are_ignored(jwk: Any) -> None:
    assert algorithms(jwk, P256.jwk()) == [{"ES256"}]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"keys": 7}', b"\xff", b'{"keys":' + b"[" * 100_000])
def test_an_invalid_key_set_is_rejected(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_key_set(content)


def test_an_empty_key_set_is_valid_and_the_number_of_keys_is_limited() -> None:
    assert len(parse_key_set(b'{"keys": []}').keys) == 0
    assert len(algorithms(*[P256.jwk()] * (KEYS_MAX + 5))) == KEYS_MAX
