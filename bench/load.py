"""Closed-loop load generators: threads with one connection each that send prepared HTTP requests, and wrk."""

import http.client
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from servers.install import ensure_command


@dataclass(frozen=True)
class Request:
    """A request that can be sent repeatedly. `renewed` returns the body to send from `body`."""

    method: str
    path: str
    body: bytes = b""
    media_type: str = "application/json"
    renewed: Callable[[bytes], bytes] | None = None


def requests_per_second(url: str, requests: Sequence[Request], *, connections: int, seconds: float) -> float:
    """Return the number of responses per second over this many connections. Raise if a status is not 2xx.

    Each connection sends at least one request, however short the duration is.
    """
    counts = [0] * connections
    failures: list[Exception] = []
    until = time.perf_counter() + seconds

    def work(index: int) -> None:
        try:
            connection = _connected(url)
            position = index * len(requests) // connections
            while not counts[index] or time.perf_counter() < until:
                _send(connection, requests[position % len(requests)])
                counts[index] += 1
                position += 1
        except Exception as error:  # noqa: BLE001  # raised again in the main thread
            failures.append(error)

    started = time.perf_counter()
    _in_threads(work, connections)
    if failures:
        raise failures[0]
    return sum(counts) / (time.perf_counter() - started)


def small_requests_per_second(url: str, script: str, *, connections: int, seconds: float) -> float:
    """Return the number of responses per second that wrk receives with a Lua script. Raise if a status is not 2xx."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        duration = f"{max(1, round(seconds))}s"
        command = [str(ensure_command("wrk", "wrk")), "-t1", f"-c{connections}", f"-d{duration}", "-s", file.name, url]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in printed or (rate := re.search(r"Requests/sec:\s+([0-9.]+)", printed)) is None:
        raise RuntimeError(f"wrk saw failures:\n{printed}")
    return float(rate[1])


def send_all(url: str, requests: Sequence[Request]) -> None:
    """Send every request once."""
    connection = _connected(url)
    for request in requests:
        _send(connection, request)


def answer(url: str, request: Request) -> bytes:
    """Send a request once and return the body of the response."""
    return _send(_connected(url), request)


def _connected(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=60)


def _send(connection: http.client.HTTPConnection, request: Request) -> bytes:
    body = request.renewed(request.body) if request.renewed else request.body
    connection.request(request.method, request.path, body or None, {"Content-Type": request.media_type})
    response = connection.getresponse()
    answered = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{request.method} {request.path}: {response.status} {answered[:200]!r}")
    return answered


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
