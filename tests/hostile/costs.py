"""Send one request at a time to a service, and measure its cost to other callers in time and memory."""

import contextlib
import http.client
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from hostile.watched import SOCKET
from support.kinds import AWS
from support.running import Service, running

WAIT_S = 2
"""The deadline of every request."""

JSON = {"Content-Type": "application/json", "Prefer": f"wait={WAIT_S}"}
PATIENT = {"Content-Type": "application/json", "Prefer": "wait=100"}

AFTERWARDS_S = 0.3
"""The duration of the measurement after a deadline. The service should not work on the request then."""

TIMEOUT_S = 120.0
LOOP_S_MAX = 0.15
"""The documented limit is 50 ms. On a busy machine, the same work may take up to three times the CPU time."""

PROCESS_S_MAX = 0.3
"""Threads do some of their work without the interpreter's lock, while the loop continues to run."""

OVERRUN_S_MAX = 1.0
MARGIN_BYTES = 32 * 2**20
"""Memory that the allocator and the store retain after the request."""

TIMES_MAX = 8
"""The memory that a request may take, as a multiple of its size and the size of the largest record that it needs."""

RESPONSE_BYTES_MAX = 64 * 2**20
ROCKSDB_BYTES_MAX = 48 * 2**20
"""The caches and write buffers of RocksDB."""

TRIES = 3
"""A measurement that breaks the rule is repeated, because other processes disturb it only in one direction."""


@dataclass(frozen=True)
class Sent:
    """A request. `expanded_bytes` is the size of its body after decompression, if it is compressed."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
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
    deadline. `loop_s` is the CPU time of the event loop's thread in its longest turn, and `process_s` that of all
    threads. `memory_bytes` is the additional memory, and `allowed_bytes` its limit.
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
    def summary(self) -> str:
        """The figures in one line."""
        codes = "".join(f" {count} {code}" for code, count in self.answered.codes.items())
        return (
            f"{self.answered.status}{codes}, {self.seconds:.2f} s, longest turn {self.loop_s * 1e3:.0f} ms of CPU, "
            f"{self.process_s * 1e3:.0f} ms with other threads, "
            f"{self.memory_bytes / 2**20:.0f} MiB for {self.request_bytes / 2**20:.2f} MiB"
        )

    @property
    def faults(self) -> list[str]:
        """The parts of the rule that the request broke, with some margin."""
        overrun_s = min(self.seconds, self.cpu_s) - WAIT_S
        extra = self.memory_bytes - self.allowed_bytes
        found = {
            f"blocked the loop for {self.loop_s * 1e3:.0f} ms": self.loop_s > LOOP_S_MAX,
            f"blocked the loop from other threads for {self.process_s * 1e3:.0f} ms": self.process_s > PROCESS_S_MAX,
            f"computed {overrun_s:.1f} s beyond its deadline": overrun_s > OVERRUN_S_MAX,
            f"computed {self.afterwards_s:.1f} s after its answer": self.afterwards_s > AFTERWARDS_S / 2,
            f"took {extra / 2**20:.0f} MiB more memory than it may": extra > MARGIN_BYTES,
            f"ended with status {self.answered.status}": self.answered.status in (0, 500, 502),
        }
        return [text for text, broken in found.items() if broken]


class Watched:
    """A service under measurement."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._address = urlsplit(service.url).netloc

    def send(self, sent: Sent) -> Answered:
        """Send a request and return its answer."""
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
                connection.request(sent.method, sent.path, sent.body or None, dict(sent.headers))
            response = connection.getresponse()
            return Answered(response.status, _codes(response.read()))
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            return Answered(0, {})
        finally:
            connection.close()

    def put(self, table: str, records: Mapping[str, bytes], ttl_s: float = -1) -> None:
        """Write records, each of them a JSON text."""
        texts = [
            b'{"op":"put","key":%b,"ttl_s":%g,"value":%b}' % (json.dumps(key).encode(), ttl_s, text)
            for key, text in records.items()
        ]
        done = self.send(Sent("POST", f"/v1/tables/{table}/batch", b'{"operations":[%b]}' % b",".join(texts), PATIENT))
        if done.status != 200 or done.codes:
            raise RuntimeError(f"records cannot be made in {table}: {done}")

    def cost(self, sent: Sent, more_bytes: int = 0) -> Cost:
        """Send a request, and return its cost: the lowest figures of several times, if it breaks the rule.

        `more_bytes` is the memory that it may take besides that for its own size and the limit on responses.
        """
        costs = [self._cost(sent, more_bytes)]
        while least(costs).faults and len(costs) < TRIES:
            costs.append(self._cost(sent, more_bytes))
        return least(costs)

    def _cost(self, sent: Sent, more_bytes: int) -> Cost:
        self.longest_turn()
        status = Path(f"/proc/{self.service.pid}/status")
        before_bytes = _bytes_in(status, "VmRSS")
        status.with_name("clear_refs").write_text("5")  # resets VmHWM
        started_s, cpu_s = time.monotonic(), self._cpu_s()
        answered = self.send(sent)
        seconds, cpu_s = time.monotonic() - started_s, self._cpu_s() - cpu_s
        afterwards_s = self._afterwards_s() if "deadline_exceeded" in answered.codes else 0.0
        memory_bytes = _bytes_in(status, "VmHWM") - before_bytes
        allowed_bytes = TIMES_MAX * sent.size_bytes + RESPONSE_BYTES_MAX + more_bytes
        turn = self.longest_turn()
        return Cost(answered, seconds, cpu_s, afterwards_s, *turn, memory_bytes, sent.size_bytes, allowed_bytes)

    def longest_turn(self) -> tuple[float, float]:
        """Return the longest turn of the loop since the last call. The service returns unused memory."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.service.directory / SOCKET))
            loop_s, process_s = json.load(connection.makefile())
            return loop_s, process_s

    def _afterwards_s(self) -> float:
        before_s = self._cpu_s()
        time.sleep(AFTERWARDS_S)
        return self._cpu_s() - before_s

    def _cpu_s(self) -> float:
        """Return the CPU time of the service. A process's clock follows from its id, see clock_getcpuclockid(3)."""
        return time.clock_gettime((~self.service.pid << 3) | 2)


def least(costs: Sequence[Cost]) -> Cost:
    """Return the lowest figures of several measurements of one request."""
    measured = ("seconds", "cpu_s", "afterwards_s", "loop_s", "process_s", "memory_bytes")
    return replace(costs[-1], **{name: min(getattr(cost, name) for cost in costs) for name in measured})


@contextlib.contextmanager
def watched(directory: Path, config: str) -> Iterator[Watched]:
    """Run a service under measurement."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "tableside.yaml"
    file.write_text(config)
    with running(directory, file, module="hostile.watched", environment=AWS) as service:
        yield Watched(service)


def _bytes_in(status: Path, name: str) -> int:
    [size_kb] = re.findall(rf"^{name}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    return int(size_kb) * 1024


def _codes(body: bytes) -> Mapping[str, int]:
    return Counter(code.decode() for code in re.findall(rb'"code":"(\w+)"', body if body[:1] == b"{" else b""))
