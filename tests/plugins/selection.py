"""Select cases: `--full` adds the cases for a release, `--quick` leaves out cases that start a process.

Cases with the mark `daily` test parts that change rarely, and take long: the container image, for example. They run if
their file or a folder above it is named, and with `--daily` or `--full`.
"""

import re
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.workermanage import WorkerController

SERVERS = {
    "api",
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

STARTING = {"browser", "chart", "jvm", "server"}
"""Marks of cases that are not part of a quick run."""

QUICK_SHARE = 10
"""A quick run tries every tenth of the examples."""

MARKS = re.compile(r"^pytestmark = .*(?:\n    .*)*", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the soak tests, and every test at its full size")
    parser.addoption("--daily", action="store_true", help="also run the cases of parts that change rarely")
    parser.addoption("--quick", action="store_true", help="leave out cases with a server, JVM, browser or chart")


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether this run has the sizes of a release: `rows = 12_000 if full else 500`."""
    return bool(pytestconfig.getoption("--full"))


def pytest_configure(config: pytest.Config) -> None:
    """Add the daily cases if paths are named."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    config.option.daily = getattr(config, "workerinput", {}).get("daily", named) or any(
        _options(config, "daily", "full")
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker process whether paths are named, which it cannot see."""
    node.workerinput["daily"] = node.config.option.daily


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file if this run contains none of its cases."""
    if not collection_path.name.startswith("test_"):
        return None
    found = MARKS.search(collection_path.read_text(encoding="utf-8"))
    marks = set(re.findall(r"\bmark\.(\w+)|\b(jvm)\(", found[0])) if found else set()
    return True if _excluded(config).intersection(name for each in marks for name in each) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases that use a server's fixture."""
    if SERVERS.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases that are not part of this run, and let hypothesis try fewer examples in a quick one."""
    if config.getoption("--quick"):
        _try_fewer_examples(items)
    excluded = _excluded(config)
    deselected = {item for item in items if any(mark.name in excluded for mark in item.iter_markers())}
    if deselected:
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]


def _try_fewer_examples(items: list[pytest.Item]) -> None:
    settings.load_profile("quick")
    for function in {item.function for item in items if isinstance(item, pytest.Function)}:
        if chosen := getattr(function, "_hypothesis_internal_use_settings", None):
            fewer = max(chosen.max_examples // QUICK_SHARE, 1)
            function._hypothesis_internal_use_settings = settings(chosen, max_examples=fewer)


def _excluded(config: pytest.Config) -> set[str]:
    """Return the marks of the cases that are not part of this run."""
    full, daily, quick = _options(config, "full", "daily", "quick")
    return {*([] if full else ["full"]), *([] if daily else ["daily"]), *(STARTING if quick else [])}


def _options(config: pytest.Config, *names: str) -> list[bool]:
    return [bool(config.getoption(f"--{name}")) for name in names]
