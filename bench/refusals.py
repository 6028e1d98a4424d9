"""The time to refuse a token, by the kind of error: does it reveal a secret?

Refusals are measured for the authenticator in this process, and for a running service over one connection. The order of
kinds is random, so that disturbances affect all of them. The baseline is a random token with the length of a known one.
If an unsigned token shares characters with a known one, the time must not differ. Signed tokens are refused at several
steps. The step depends only on the token and on public keys.
"""

import asyncio
import gc
import json
import random
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from math import inf, sqrt
from pathlib import Path
from statistics import fmean, median, quantiles, variance
from unittest.mock import patch

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from examples.demo.service import HOST, free_port, running
from jwt.algorithms import ECAlgorithm
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table

from tableside.auth import Auth, TokenRejected
from tableside.auth.keys import KeysLocation, PublicKeySet, parse_key_set
from tableside.settings import validate

from .report import WIDTH, Result, group

BASELINE = "unknown, as long as a known one"
CONTROL = "others of that kind: what chance alone makes of it"
TOKENS = 1000
KID = "bench"
PER_SECOND = {"in process": 4000, "over HTTP": 400}
"""The number of measured refusals of each kind per requested second."""

MADE = 4000
"""The number of tokens of each kind."""

FETCHED_S = 0.2

DIFFERENT = 4.5
"""The absolute t above which two sets of times differ, as dudect applies Welch's t-test to constant-time code.

Reparaz, Balasch and Verbauwhede, "Dude, is my code constant time?", 2017. Times above a percentile of both sets are
discarded as effects of the scheduler.
"""

KEPT_PERCENT = 90

Times = dict[str, list[float]]
Made = dict[str, list[str]]
Refuse = Callable[[bytes], None]


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all kinds, and return their median rates."""
    key = ec.generate_private_key(ec.SECP256R1())
    known = [f"tableside_{secrets.token_urlsafe(32)}" for _ in range(TOKENS)]
    results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "keys.json").write_text(json.dumps(_jwks(key)))
        issuer = stack.enter_context(_files(folder))
        made = _made(_kinds(known, issuer, key))
        auth = _auth(known, issuer)
        ways: dict[str, Refuse] = {"in process": stack.enter_context(_in_process(auth, _jwks(key)))}
        ways["over HTTP"] = stack.enter_context(_over_http(folder, auth))
        for name, refuse in ways.items():
            times = _measured(refuse, made, max(200, int(PER_SECOND[name] * seconds * rounds)))
            _explain(name, times)
            rates = [(kind, 1e6 / median(of_kind)) for kind, of_kind in times.items()]
            results += group(f"refusals, {name}", "refusals", rates, {})
    return results


def welch_t(some: Sequence[float], others: Sequence[float]) -> float:
    """Return the difference of the means in standard errors, after discarding. It is positive if `some` is slower."""
    most = quantiles([*some, *others], n=100)[KEPT_PERCENT - 1]
    one, two = ([time for time in times if time <= most] for times in (some, others))
    if len(one) < 2 or len(two) < 2:
        return inf
    error = sqrt(variance(one) / len(one) + variance(two) / len(two))
    apart = fmean(one) - fmean(two)
    return apart / error if error else (inf if apart else 0.0)


def spread(times: Sequence[float]) -> float:
    """Return the interquartile range of the times."""
    first, _, third = quantiles(times, n=4)
    return third - first


def _kinds(known: Sequence[str], issuer: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Callable[[], str]]:
    """Return a factory for each kind of token. Unsigned tokens differ each time."""
    length, now = len(known[0]), int(time.time())
    claims = {"iss": issuer, "aud": "bench", "sub": "b", "exp": now + 86400}
    other = ec.generate_private_key(ec.SECP256R1())

    def alike(count: int) -> str:
        token = random.choice(known)
        made = (token[:count] + secrets.token_urlsafe(64))[:length]
        return made if made != token else alike(count)

    def signed(by: ec.EllipticCurvePrivateKey, **more: object) -> Callable[[], str]:
        token = jwt.encode({**claims, **more}, by, "ES256", {"kid": KID})
        return lambda: token

    return {
        BASELINE: lambda: secrets.token_urlsafe(64)[:length],
        CONTROL: lambda: secrets.token_urlsafe(64)[:length],
        "the first 10 characters of a known one": lambda: alike(10),
        "the first half of a known one": lambda: alike(length // 2),
        "all but the last character of a known one": lambda: alike(length - 1),
        "a known one, cut by one": lambda: random.choice(known)[:-1],
        "a known one, with one more": lambda: f"{random.choice(known)}x",
        "none": lambda: "",
        "unknown, 4 KiB": lambda: secrets.token_urlsafe(3072),
        "signed: unknown issuer": signed(key, iss="https://other.example"),
        "signed: wrong audience": signed(key, aud="other"),
        "signed: wrong signature": signed(other),
        "signed: expired": signed(key, exp=now - 3600),
    }


def _made(kinds: Mapping[str, Callable[[], str]]) -> Made:
    """Return tokens of each kind, all created before the measurement, because creating one affects CPU caches."""
    return {kind: [make() for _ in range(MADE)] for kind, make in kinds.items()}


def _measured(refuse: Refuse, made: Made, count: int) -> Times:
    """Return the duration of each refusal in microseconds."""
    times: Times = {kind: [] for kind in made}
    order = list(made)
    for tokens in made.values():
        refuse(tokens[0].encode())
    gc.collect()
    gc.disable()
    try:
        for _ in range(count):
            random.shuffle(order)
            for kind in order:
                token = random.choice(made[kind]).encode()  # a copy, so its address has no influence
                began = time.perf_counter_ns()
                refuse(token)
                times[kind].append((time.perf_counter_ns() - began) / 1000)
    finally:
        gc.enable()
    return times


def _explain(name: str, times: Times) -> None:
    title = f"Refusals {name}, {len(times[BASELINE]):,} of each kind; an absolute t above {DIFFERENT} is a difference"
    shown = Table("token", title=f"\n{title}", title_justify="left")
    for heading in ("median", "middle half", "t"):
        shown.add_column(heading, justify="right")
    for kind, of_kind in times.items():
        t = "" if kind == BASELINE else f"{welch_t(of_kind, times[BASELINE]):.1f}"
        shown.add_row(kind, f"{median(of_kind):.2f} us", f"{spread(of_kind):.2f} us", t)
    Console(width=WIDTH).print(shown)


def _auth(known: Sequence[str], issuer: str) -> dict[str, object]:
    digests = (sha256(token.encode()).hexdigest() for token in known)
    tokens = [{"name": f"n{number}", "sha256": digest, "read": ["*"]} for number, digest in enumerate(digests)]
    rules = [{"claims": {"sub": "*"}, "read": ["*"]}]
    url = f"{issuer}/keys.json"
    return {"tokens": tokens, "issuers": [{"issuer": issuer, "audience": "bench", "jwks_url": url, "rules": rules}]}


def _jwks(key: ec.EllipticCurvePrivateKey) -> dict[str, object]:
    return {"keys": [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": KID}]}


@contextmanager
def _in_process(settings: Mapping[str, object], jwks: Mapping[str, object]) -> Iterator[Refuse]:
    """Provide the authenticator in this process, with the issuer's keys already loaded."""

    async def fetch(place: KeysLocation) -> PublicKeySet:
        return parse_key_set(json.dumps(jwks).encode())

    configured = validate({"stores": {"s": {"kind": "memory"}}, "auth": settings}).auth
    auth = Auth(configured, CollectorRegistry())
    with patch("tableside.auth.key_source.fetch_keys", fetch), suppress(TimeoutError):
        asyncio.run(asyncio.wait_for(auth.run(), FETCHED_S))

    def refuse(token: bytes) -> None:
        with suppress(TokenRejected):
            auth.caller_of(token)
            raise AssertionError("a token that must be refused was accepted")

    yield refuse


@contextmanager
def _over_http(folder: Path, settings: Mapping[str, object]) -> Iterator[Refuse]:
    """Provide one connection to a running service."""
    config, port = folder / "bench.yaml", free_port()
    data = {"stores": {"s": {"kind": "memory"}}, "tables": {"t": {"store": "s"}}, "logs": {"level": "warning"}}
    config.write_text(json.dumps({**data, "auth": settings}))
    head = f"GET /v1/tables/t/records/a HTTP/1.1\r\nHost: {HOST}\r\n".encode()
    with running(folder, port, config=config), socket.create_connection((HOST, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def refuse(token: bytes) -> None:
            given = b"Authorization: Bearer %b\r\n" % token if token else b""
            connection.sendall(b"%b%b\r\n" % (head, given))
            answer = b""
            while not answer.endswith(b"}"):
                if not (more := connection.recv(65536)):
                    raise AssertionError(f"the service closed the connection after {answer[:60]!r}")
                answer += more
            if not answer.startswith(b"HTTP/1.1 401 "):
                raise AssertionError(f"expected a 401 response, but received: {answer[:60]!r}")

        yield refuse


@contextmanager
def _files(folder: Path) -> Iterator[str]:
    """Serve the files of a folder on a local port, as an issuer serves its keys."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]  # the arguments of the base class

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the library's name
            """Log nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
