"""Redis, as a single server and as a cluster of three masters, with its data only in memory."""

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .install import ensure_command
from .process import HOST, START_MAX_S, Server, ServerFailed, free_port, running

MASTERS = 3
SLOTS = 16384
ANSWER_MAX_S = 5.0
JOIN_NODE_TIMEOUT_MS = 500
NODE_TIMEOUT_MS = 15000
ASK_INTERVAL_S = 0.02


@contextlib.contextmanager
def redis(directory: Path, *, arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run Redis and yield its URL. `arguments` come last on its command line and override defaults."""
    with _running(directory, arguments) as port:
        yield _url(port)


@contextlib.contextmanager
def redis_cluster(directory: Path) -> Iterator[list[str]]:
    """Run a Redis Cluster of three masters without replicas. Yield their URLs when each reports a healthy cluster."""
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(MASTERS):
            bus = free_port()  # the default, the port plus 10,000, may be out of range
            # A master waits this long before it reports a healthy cluster.
            timeout = ["--cluster-node-timeout", str(JOIN_NODE_TIMEOUT_MS)]
            arguments = ["--cluster-enabled", "yes", "--cluster-port", str(bus), *timeout]
            ports.append((stack.enter_context(_running(directory / str(number), arguments)), bus))
        _join(ports)
        yield [_url(port) for port, _ in ports]


@contextlib.contextmanager
def _running(directory: Path, arguments: Sequence[str]) -> Iterator[int]:
    """Run one Redis and yield its port."""
    port = free_port()
    where = ["--bind", HOST, "--port", str(port)]
    without_persistence = ["--save", "", "--appendonly", "no"]
    command = [str(ensure_command("redis-server", "redis-server")), *where, *without_persistence, *arguments]
    with running(Server("redis", command, lambda: _ask(port, "PING") == "PONG"), directory):
        yield port


def _join(ports: Sequence[tuple[int, int]]) -> None:
    """Join separate masters into one cluster, and wait until all of them agree."""
    first, first_bus = ports[0]
    for number, (port, _) in enumerate(ports):
        low, high = number * SLOTS // len(ports), (number + 1) * SLOTS // len(ports) - 1
        _execute(port, f"CLUSTER ADDSLOTSRANGE {low} {high}")
        _execute(port, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
        if port != first:
            _execute(port, f"CLUSTER MEET {HOST} {first} {first_bus}")
    until = time.monotonic() + START_MAX_S
    while not all(_agrees(port, len(ports)) for port, _ in ports):
        if time.monotonic() > until:
            raise ServerFailed(f"the cluster is not healthy:\n{_ask(first, 'CLUSTER INFO')}")
        time.sleep(ASK_INTERVAL_S)
    for port, _ in ports:
        _execute(port, f"CONFIG SET cluster-node-timeout {NODE_TIMEOUT_MS}")


def _agrees(port: int, masters: int) -> bool:
    """Return whether a master sees a complete cluster of this many masters."""
    lines = _ask(port, "CLUSTER INFO").split()
    return {"cluster_state:ok", f"cluster_known_nodes:{masters}", f"cluster_size:{masters}"} <= set(lines)


def _execute(port: int, command: str) -> None:
    if (answer := _ask(port, command)) != "OK":
        raise ServerFailed(f"redis on port {port} answered {command} with {answer!r}")


def _ask(port: int, command: str) -> str:
    """Return the reply to one command, an error as its text. Uses a plain socket, so no client package is needed."""
    with socket.create_connection((HOST, port), timeout=ANSWER_MAX_S) as connection, connection.makefile("rwb") as file:
        file.write(f"{command}\r\n".encode())
        file.flush()
        head = file.readline().decode().strip()
        return file.read(int(head[1:])).decode() if head.startswith("$") else head[1:]


def _url(port: int) -> str:
    return f"redis://{HOST}:{port}/0"
