"""Select cases: `--full` adds the cases for a release, `--quick` leaves out cases that start a process."""

import re
from pathlib import Path

import pytest

SERVERS = {
    "api",
    "dynalite_url",
    "dynamodb_url",
    "kafka_address",
    "own_postgres_dsn",
    "own_redis_cluster_urls",
    "own_redis_url",
    "postgres_dsn",
    "redis_cluster_urls",
    "redis_url",
    "released",
    "service",
}
"""Fixtures that start a server, or a similarly expensive process."""

STARTING = {"browser", "jvm", "server"}
"""Marks of cases that are not part of a quick run."""

MARKED = re.compile(rf"^pytestmark = .*\bmark\.({'|'.join(sorted(STARTING))})\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the soak tests, and every test at its full size")
    parser.addoption("--quick", action="store_true", help="leave out cases that start a server, a JVM or a browser")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether this run has the sizes of a release: `rows = 12_000 if full else 500`."""
    return bool(pytestconfig.getoption("--full"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file if a quick run contains none of its cases."""
    if not config.getoption("--quick") or not collection_path.name.startswith("test_"):
        return None
    return True if MARKED.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases that use a server's fixture."""
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that are not part of this run."""
    excluded = set() if config.getoption("--full") else {"full"}
    if config.getoption("--quick"):
        excluded |= STARTING
    deselected = {item for item in items if any(mark.name in excluded for mark in item.iter_markers())}
    if deselected:
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]
