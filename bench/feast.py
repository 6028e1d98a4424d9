"""Feast's online store on Tableside against its Redis store, as Feast documents it, on the same Redis.

Both ways call the interface of Feast, each in a process with Feast. Redis without `skip_dedup` reads the times of all
rows before it writes them, and its check is not atomic. `skip_dedup` is for loads without late rows.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers.feast import feast_environment
from servers.redis import redis

from .report import Result
from .services import serving
from .turns import Comparison, Rate, measured

VIEWS = [f"view{number}" for number in range(5)]
FEATURES = 10
ENTITIES = 5_000
BATCH = 1_000
TASKS_AT_ONCE = 32

REDIS, UNCHECKED, VIEW, ENTITY = "Redis", "Redis, skip_dedup", "Tableside", "Tableside, record_per: entity"
READING = (REDIS, VIEW, ENTITY)
COMPARED = {
    f"write of {BATCH}": ("write", (REDIS, UNCHECKED, VIEW, ENTITY)),
    "read of 1, one thread": ("read 1", READING),
    f"read of 1, {TASKS_AT_ONCE} tasks": ("read 1 at once", READING),
    f"read of {BATCH}": ("read many", READING),
    f"get_online_features of 50, {len(VIEWS)} views": ("features", READING),
}
"""The task of each comparison, and its ways, the baseline first."""


def run(seconds: float, rounds: int = 3) -> list[Result]:
    """Measure all ways in turn over several rounds, and return the medians in rows per second."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(redis(folder))
        tables: dict[str, Any] = {f"p{index}_{name}": {} for index in (2, 3) for name in (*VIEWS, "driver")}
        service = stack.enter_context(serving(folder / "service", {"kind": "redis", "url": url}, tables))
        stores = _stores(urlsplit(url).netloc, service.url)
        ways = {
            way: stack.enter_context(_calls(store, f"p{index}", folder))
            for index, (way, store) in enumerate(stores.items())
        }
        for rate in ways.values():
            rate("fill", 0)
        return measured([_comparison(title, *each, ways, seconds) for title, each in COMPARED.items()], rounds)


def _stores(redis_address: str, url: str) -> dict[str, dict[str, Any]]:
    direct = {"type": "redis", "connection_string": redis_address}
    ours = {"type": "tableside_client.feast.TablesideOnlineStore", "url": url}
    return {
        REDIS: direct,
        UNCHECKED: {**direct, "skip_dedup": True},
        VIEW: ours,
        ENTITY: {**ours, "record_per": "entity"},
    }


def _comparison(title: str, task: str, names: tuple[str, ...], ways: Mapping[str, Any], seconds: float) -> Comparison:
    rates: dict[str, Rate] = {name: partial(ways[name], task, seconds) for name in names}
    return Comparison(title, "rows", rates)


@contextmanager
def _calls(store: Mapping[str, Any], project: str, folder: Path) -> Iterator[Any]:
    """Run a process that calls a store, and yield a function that measures a task."""
    arguments = ["-m", "bench.feast_calls", json.dumps(store), project, str(folder / f"{project}.db")]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        env=feast_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    output = process.stdout
    while output.readline() not in ("ready\n", ""):
        pass

    def rate(task: str, seconds: float) -> float:
        print(f"{task},{seconds}", file=process.stdin, flush=True)
        return float(output.readline())

    with process:
        yield rate
        process.stdin.close()
