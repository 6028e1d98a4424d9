"""`-k` without reading every file: files whose cases cannot match are not collected.

The names of all cases are kept in pytest's cache. They are used until their file or a support module of the tests
changes.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest

CACHED = "tableside/cases"
WORD = re.compile(r"[^\s()]+")
OPERATORS = {"and", "or"}
FIRST_WORKER = "gw0"

Cases = dict[str, tuple[int, str]]
"""For each file, relative to the tests: when it or a support module last changed, and the names of its cases."""

WORDS = pytest.StashKey[set[str]]()
KNOWN = pytest.StashKey[Cases]()
SUPPORT_CHANGED = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    words = set(WORD.findall(config.getoption("keyword").lower()))
    # "not word" matches cases of any file.
    config.stash[WORDS] = set() if "not" in words else words - OPERATORS
    support = (file for file in _tests(config).rglob("*.py") if not file.name.startswith("test_"))
    config.stash[SUPPORT_CHANGED] = max(map(_changed, support), default=0)
    config.stash[KNOWN] = {file: (changed, names) for file, (changed, names) in _cached(config).items()}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file if no case in it contains one of the words, and a folder, with its conftest.py, if all files do."""
    if not config.stash[WORDS] or not collection_path.is_relative_to(_tests(config)):
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else iter([collection_path])
    return True if all(_cannot_match(file, config) for file in files) else None


def _cannot_match(file: Path, config: pytest.Config) -> bool:
    changed, names = config.stash[KNOWN].get(_name(file, config), (0, ""))
    return changed == _stamp(file, config) and not any(word in names for word in config.stash[WORDS])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Store the names of the cases, unless only a part of a file was requested."""
    if any("::" in argument for argument in config.args) or _worker(config) != FIRST_WORKER:
        return
    found: dict[Path, list[str]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(_tests(config)):
            found[item.path].append(" ".join([item.nodeid, *(mark.name for mark in item.iter_markers())]).lower())
    named = {_name(file, config): (_stamp(file, config), "\n".join(names)) for file, names in found.items()}
    if cache := _cache(config):
        cache.set(CACHED, config.stash[KNOWN] | named)


def _tests(config: pytest.Config) -> Path:
    return config.rootpath / "tests"


def _name(file: Path, config: pytest.Config) -> str:
    return str(file.relative_to(_tests(config)))


def _stamp(file: Path, config: pytest.Config) -> int:
    return max(_changed(file), config.stash[SUPPORT_CHANGED])


def _changed(file: Path) -> int:
    return file.stat().st_mtime_ns


def _worker(config: pytest.Config) -> str:
    return str(getattr(config, "workerinput", {}).get("workerid", FIRST_WORKER))


def _cached(config: pytest.Config) -> Cases:
    cache = _cache(config)
    return cache.get(CACHED, {}) if cache else {}


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """Return pytest's cache, None with `-p no:cacheprovider`."""
    return getattr(config, "cache", None)
