"""An issuer of signed tokens for tests: keys of every kind, valid and invalid tokens, and a JWKS server."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "tableside"
EDWARDS: dict[str, Any] = {"Ed25519": ed25519.Ed25519PrivateKey, "Ed448": ed448.Ed448PrivateKey}
CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
FITTING = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}


class SigningKey:
    """A key pair. `kind` is RSA or the name of a curve."""

    def __init__(self, kid: str | None, kind: str = "P-256", bits: int = 2048) -> None:
        self.kid = kid
        self.private: Any
        if kind == "RSA":
            self.private = rsa.generate_private_key(65537, bits)
            self.algorithm = "RS256"
        elif kind in EDWARDS:
            self.private = EDWARDS[kind].generate()
            self.algorithm = FITTING[kind]
        else:
            self.private = ec.generate_private_key(CURVES[kind])
            self.algorithm = FITTING[kind]

    def jwk(self, *, private: bool = False, **more: Any) -> dict[str, Any]:
        """Return the key as a JWK. `more` replaces members, or removes members that are None."""
        key = self.private if private else self.private.public_key()
        kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "EdDSA": OKPAlgorithm}
        shown: dict[str, Any] = kinds.get(self.algorithm, ECAlgorithm).to_jwk(key, as_dict=True)
        shown.pop("key_ops", None)
        given = {**shown, "kid": self.kid, "use": "sig", **more}
        return {name: member for name, member in given.items() if member is not None}

    def signed(self, claims: Mapping[str, Any], algorithm: str | None = None, **header: Any) -> str:
        """Return a token."""
        given = {"kid": self.kid, **header}
        headers = {name: member for name, member in given.items() if member is not None}
        return jwt.encode(dict(claims), self.private, algorithm or self.algorithm, headers)


def claims(issuer: str, **more: Any) -> dict[str, Any]:
    """Return claims that are valid for five minutes. `more` replaces claims, or removes claims that are None."""
    now = int(time.time())
    given = {"iss": issuer, "aud": AUDIENCE, "sub": "someone", "iat": now, "exp": now + 300, **more}
    return {name: claim for name, claim in given.items() if claim is not None}


def unsigned(claims: Mapping[str, Any], alg: object = "none", **header: Any) -> str:
    """Return a token without a signature."""
    return ".".join([_part({"alg": alg, "typ": "JWT", **header}), _part(claims), ""])


def tampered(token: str, **changed: Any) -> str:
    """Return a token with changed claims and the original signature."""
    head, body, signature = token.split(".")
    given = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return ".".join([head, _part({**given, **changed}), signature])


def _part(document: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


class Issuer:
    """A loopback server that publishes `keys`, or the responses in `answers` by path.

    `asked` records the requested paths with their headers. `slow_s` delays responses. `away` breaks connections.
    """

    def __init__(self, *keys: SigningKey) -> None:
        self.keys: list[dict[str, Any]] = [key.jwk() for key in keys]
        self.key = keys[0] if keys else SigningKey("first")
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.slow_s = 0.0
        self.away = False
        self.url = ""

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys"

    @property
    def fetches(self) -> int:
        """The number of requests for the keys."""
        return sum(path == "/keys" for path, _ in self.asked)

    def settings(self, *rules: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the issuer's settings for the configuration. Without rules, every subject may read everything."""
        given = [*rules] or [{"claims": {"sub": "*"}, "read": ["*"]}]
        found = {"issuer": self.url, "audience": AUDIENCE, "jwks_url": self.jwks_url, "rules": given, **more}
        return {name: member for name, member in found.items() if member is not None}

    def token(self, **more: Any) -> str:
        """Return a valid token."""
        return self.key.signed(claims(self.url, **more))

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path in self.answers:
            return self.answers[path]
        if path == "/keys":
            return 200, {}, json.dumps({"keys": self.keys}).encode()
        if path == "/.well-known/openid-configuration":
            return 200, {}, json.dumps({"issuer": self.url, "jwks_uri": self.jwks_url}).encode()
        return 404, {}, b"{}"


@contextmanager
def issuing(*keys: SigningKey, context: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """Run an issuer, with one new key if none is given."""
    issuer = Issuer(*(keys or (SigningKey("first"),)))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
            time.sleep(issuer.slow_s)
            if issuer.away:
                self.close_connection = True
                return
            status, headers, body = issuer.answer(self.path)
            self.send_response(status)
            for name, text in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the library's name
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore clients that disconnect early."""

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    issuer.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
