"""Send one request at a time to a service, and measure its cost to other callers in time and memory."""

import contextlib
import http.client
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from hostile.watched import FILE_VARIABLE, TRIM, Turns
from support.running import Service, running
from support.waiting import until

AFTERWARDS_S = 0.3
"""The duration of the measurement after a deadline. The service should not work on the request then."""

TIMEOUT_S = 120.0
LOOP_S_MAX = 0.15
"""The documented limit is 50 ms. On a busy machine, the same work may take up to three times the CPU time."""

PROCESS_S_MAX = 0.3
"""Threads do some of their work without the interpreter's lock, while the loop continues to run."""

OVERRUN_S_MAX = 1.0
MEMORY_MARGIN_BYTES = 32 * 2**20
"""Memory that the allocator and the store retain after the request."""

TIMES_MAX = 8
"""The memory that a request may take, as a multiple of its size and the size of the largest record that it needs."""

ROCKSDB_BYTES_MAX = 48 * 2**20
"""The caches and write buffers of RocksDB."""


@dataclass(frozen=True)
class Sent:
    """A request. `expanded_bytes` is the size of its body after decompression, if it is compressed."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    expanded_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of the head and of the body, after decompression."""
        head = len(self.path) + sum(len(name) + len(text) for name, text in self.headers.items())
        return head + max(len(self.body), self.expanded_bytes)


@dataclass(frozen=True)
class Answered:
    """An answer: `codes` counts the error codes of the whole or of its operations. Status 0: the connection ended."""

    status: int
    codes: Mapping[str, int]


@dataclass(frozen=True)
class Cost:
    """The cost of a request.

    `seconds` and `cpu_s` are its duration and the CPU time of the service, and `afterwards_s` the CPU time after its
    deadline.

    `loop_s` is the CPU time of the event loop's thread in its longest turn, and `process_s` that of all threads.
    `memory_bytes` is the additional memory, and `allowed_bytes` its limit.
    """

    answered: Answered
    seconds: float
    cpu_s: float
    afterwards_s: float
    loop_s: float
    process_s: float
    memory_bytes: int
    request_bytes: int
    allowed_bytes: int

    @property
    def blocked_s(self) -> float:
        """The longest turn, including the time that threads may have blocked the interpreter's lock."""
        return max(self.loop_s, self.process_s)

    @property
    def times(self) -> float:
        """The memory as a multiple of the request."""
        return self.memory_bytes / max(1, self.request_bytes)

    @property
    def summary(self) -> str:
        """The figures in one line."""
        codes = "".join(f" {count} {code}" for code, count in self.answered.codes.items())
        return (
            f"{self.answered.status}{codes}, {self.seconds:.2f} s, longest turn {self.loop_s * 1e3:.0f} ms of CPU, "
            f"{self.process_s * 1e3:.0f} ms with other threads, "
            f"{self.memory_bytes / 2**20:.0f} MiB for {self.request_bytes / 2**20:.2f} MiB"
        )

    def faults(self, wait_s: float) -> list[str]:
        """Return the parts of the rule that the request broke, with some margin. `wait_s` was its deadline."""
        overrun_s = min(self.seconds, self.cpu_s) - wait_s
        extra = self.memory_bytes - self.allowed_bytes
        found = {
            f"blocked the loop for {self.loop_s * 1e3:.0f} ms": self.loop_s > LOOP_S_MAX,
            f"blocked the loop from other threads for {self.process_s * 1e3:.0f} ms": self.process_s > PROCESS_S_MAX,
            f"computed {overrun_s:.1f} s beyond its deadline": overrun_s > OVERRUN_S_MAX,
            f"computed {self.afterwards_s:.1f} s after its answer": self.afterwards_s > AFTERWARDS_S / 2,
            f"took {extra / 2**20:.0f} MiB more memory than it may": extra > MEMORY_MARGIN_BYTES,
            f"ended with status {self.answered.status}": self.answered.status in (0, 500, 502),
        }
        return [text for text, broken in found.items() if broken]

    def least(self, other: Self) -> Self:
        """Return the lower of the two for each measure, because disturbances only increase it."""
        lower = ("seconds", "cpu_s", "afterwards_s", "loop_s", "process_s", "memory_bytes")
        return type(self)(
            **{
                name: min(getattr(self, name), getattr(other, name)) if name in lower else getattr(self, name)
                for name in self.__dataclass_fields__
            }
        )


class Watched:
    """A service under measurement."""

    def __init__(self, service: Service, turns: Turns) -> None:
        self.service = service
        self._turns = turns
        parts = urlsplit(service.url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 80

    def send(self, sent: Sent) -> Answered:
        """Send a request and return its answer."""
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
                connection.request(sent.method, sent.path, sent.body or None, dict(sent.headers))
            response = connection.getresponse()
            return _answered(response.status, response.read())
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            return Answered(0, {})
        finally:
            connection.close()

    def get_json(self, path: str) -> Any:
        """Return a document of the service."""
        return httpx.get(self.service.url + path).raise_for_status().json()

    def cost(self, sent: Sent, record_bytes: int, more_bytes: int) -> Cost:
        """Send a request, and return its cost.

        `record_bytes` is the size of the largest record that it needs. `more_bytes` is the memory that it may take
        besides: the limit on a response, and the store's own memory.
        """
        self._trim()
        pid = self.service.pid
        before_bytes = _status_bytes(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._turns.reset()
        started_s, cpu_s = time.monotonic(), self._cpu_s()
        answered = self.send(sent)
        seconds, cpu_s = time.monotonic() - started_s, self._cpu_s() - cpu_s
        afterwards_s = self._afterwards_s() if "deadline_exceeded" in answered.codes else 0.0
        loop_s, process_s = self._longest_turn()
        allowed_bytes = TIMES_MAX * (sent.size_bytes + record_bytes) + more_bytes
        memory_bytes = _status_bytes(pid, "VmHWM") - before_bytes
        return Cost(
            answered, seconds, cpu_s, afterwards_s, loop_s, process_s, memory_bytes, sent.size_bytes, allowed_bytes
        )

    def _longest_turn(self) -> tuple[float, float]:
        """Return the longest turn, once the one that sent the answer has ended."""
        before = self._turns.count
        until(lambda: self._turns.count > before + 1)
        return self._turns.longest

    def _trim(self) -> None:
        before = self._turns.trims
        os.kill(self.service.pid, TRIM)
        until(lambda: self._turns.trims > before)

    def _afterwards_s(self) -> float:
        before_s = self._cpu_s()
        time.sleep(AFTERWARDS_S)
        return self._cpu_s() - before_s

    def _cpu_s(self) -> float:
        """Return the CPU time of the service. A process's clock follows from its id, see clock_getcpuclockid(3)."""
        return time.clock_gettime((~self.service.pid << 3) | 2)


@contextlib.contextmanager
def watched(directory: Path, config: str, environment: Mapping[str, str] | None = None) -> Iterator[Watched]:
    """Run a service under measurement."""
    directory.mkdir(parents=True, exist_ok=True)
    file, turns = directory / "tableside.yaml", directory / "turns"
    file.write_text(config)
    shared = Turns(turns)
    variables = {**(environment or {}), FILE_VARIABLE: str(turns)}
    with running(directory, file, module="hostile.watched", environment=variables) as service:
        yield Watched(service, shared)


def _status_bytes(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) * 1024


_CODE = re.compile(rb'"code":"(\w+)"')


def _answered(status: int, body: bytes) -> Answered:
    codes: dict[str, int] = {}
    for code in _CODE.findall(body) if body[:1] == b"{" else ():
        codes[code.decode()] = codes.get(code.decode(), 0) + 1
    return Answered(status, codes)
