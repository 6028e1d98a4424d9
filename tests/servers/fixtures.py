"""The servers as pytest fixtures. Each starts when a test first needs it and stops when the run ends.

All test processes of a run share them, so each test uses separate table names, key prefixes or schemas. A module that
disturbs others (pauses a server, ends connections, counts them) overrides a fixture with a separate server:

    @pytest.fixture(scope="module")
    def redis_url(own_redis_url: str) -> str:
        return own_redis_url
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from xdist.workermanage import WorkerController

from .postgres import postgres
from .redis import redis, redis_cluster
from .shared import Address, Connected, Servers, listening, servers

STACK = pytest.StashKey[ExitStack]()
OWNED = pytest.StashKey[Servers]()
SOCKET = pytest.StashKey[tuple[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Own the servers, unless this is a worker process of a run: then its controller owns them."""
    if not hasattr(config, "workerinput"):
        stack = config.stash[STACK] = ExitStack()
        config.stash[OWNED] = stack.enter_context(servers())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give a new worker process the address of the servers' owner."""
    stash = node.config.stash
    if SOCKET not in stash:
        stash[SOCKET] = stash[STACK].enter_context(listening(stash[OWNED]))
    node.workerinput["servers"] = stash[SOCKET]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers."""
    if STACK in config.stash:
        config.stash[STACK].close()


@pytest.fixture(scope="session")
def shared_servers(pytestconfig: pytest.Config) -> Servers | Connected:
    """The servers of the run. A quick run has none: a case that requests one at run time needs the mark `server`."""
    assert not pytestconfig.getoption("--quick"), "mark this case with `server`"
    if OWNED in pytestconfig.stash:
        return pytestconfig.stash[OWNED]
    return Connected(*pytestconfig.workerinput["servers"])  # type: ignore[attr-defined] # set by pytest-xdist


def shared(server: str) -> Any:
    """Return a fixture with the address of a server of the run."""

    @pytest.fixture(scope="session")
    def address(shared_servers: Servers) -> Address:
        return shared_servers.address(server)

    return address


redis_url = shared("redis")
"""The URL of a Redis."""

redis_cluster_urls = shared("cluster")
"""The URLs of the three masters of a Redis Cluster."""

postgres_dsn = shared("postgres")
"""The connection string of a PostgreSQL."""

dynamodb_url = shared("dynamodb")
"""The endpoint of Amazon's DynamoDB Local."""

kafka_address = shared("kafka")
"""The address of a Kafka broker, `host:port`."""


@pytest.fixture(scope="module")
def own_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that only this module uses."""
    with redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def own_redis_cluster_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The URLs of the three masters of a Redis Cluster that only this module uses."""
    with redis_cluster(tmp_path_factory.mktemp("redis-cluster")) as urls:
        yield urls


@pytest.fixture(scope="module")
def own_postgres_dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of a PostgreSQL that only this module uses."""
    with postgres(tmp_path_factory.mktemp("postgres")) as dsn:
        yield dsn
