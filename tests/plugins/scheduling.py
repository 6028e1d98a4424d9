"""Distribute cases to worker processes by file, the longest groups and slow files first.

The cases of a file share its fixtures, so they stay together. Files with the same `xdist_group` mark share more, such
as a Spark session, and stay together too.
"""

import functools
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

LONGEST = ("spark", "state", "java")
"""The groups that take minutes, longest first. Each is in one process, so all of them start at once."""

HEAVY = ("jvm", "xdist_group", "browser", "server")
"""Marks of slow files, slowest first, which follow. Files without a mark are last."""

WAITING = 2
CORES_MAX = 6
"""More processes would need more memory than they save time: each may have a JVM and servers."""

LAST = len(LONGEST) + len(HEAVY)

GROUP = re.compile(r'\b(?:xdist_group|jvm)\("(\w+)"\)')


class FileScheduling(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Like `--dist loadfile`, but the files of a group stay together.

    `--dist loadgroup` of pytest-xdist 3.8 ignores groups under pytest 9.2, so they are read from the files.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return _group(self.config.rootpath / file) or file


@functools.cache
def _group(file: Path) -> str | None:
    found = GROUP.search(file.read_text(encoding="utf-8"))
    return found[1] if found else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two processes more than there are cores, because many cases wait."""
    return min(len(os.sched_getaffinity(0)), CORES_MAX) + WAITING


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow files first, so that no worker process starts one when the other workers have finished."""
    ranks: dict[str, int] = {}
    for item in items:
        file = item.nodeid.split("::", 1)[0]
        ranks[file] = min(ranks.get(file, LAST), _rank(item))
    items.sort(key=lambda item: ranks[item.nodeid.split("::", 1)[0]])


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape characters in a report that UTF-8 cannot encode, such as half a surrogate pair that a case printed.

    pytest-xdist aborts the whole run if it cannot send a report.
    """
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_encodable(name): _encodable(member) for name, member in value.items()}
        case list() | tuple():
            return type(value)(map(_encodable, value))
    return value


def _rank(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is not None and group.args[0] in LONGEST:
        return LONGEST.index(group.args[0])
    marked = (len(LONGEST) + rank for rank, name in enumerate(HEAVY) if item.get_closest_marker(name))
    return next(marked, LAST)
