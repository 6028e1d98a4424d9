"""Which cases run: `--full` adds the soak tests and full sizes; marks say what a case starts."""

import pytest

SERVERS = {
    "dynalite_url",
    "dynamodb_url",
    "kafka_address",
    "postgres_dsn",
    "redis_cluster_urls",
    "redis_url",
    "released",
    "service",
}
"""Fixtures that start a server, or a process as heavy as one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the soak tests, and every test at its full size")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether this run has the sizes of a release: `rows = 12_000 if full else 500`."""
    return bool(pytestconfig.getoption("--full"))


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases that use a server's fixture, so that `-m` can leave them out."""
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of a full run, unless this is one."""
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("full")]
