"""Calls of a feature store, in a process that has Feast. It reads tasks from its input and prints their rates.

The first argument is the entry `online_store` as JSON, the second the project. A task is its name and seconds.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.infra.online_stores.helpers import get_online_store_from_config
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64

from bench.feast import BATCH, ENTITIES, FEATURES, TASKS_AT_ONCE, VIEWS

DRIVER = Entity(name="driver", value_type=ValueType.INT64)
KEYS = [EntityKey(join_keys=["driver"], entity_values=[Value(int64_val=number)]) for number in range(ENTITIES)]
VALUES = {f"f{number}": Value(double_val=random.random()) for number in range(FEATURES)}


class Calls:
    """A feature store with `VIEWS` views, and the measured calls. Each returns the number of rows."""

    def __init__(self, online_store: dict[str, Any], project: str, registry: str) -> None:
        self._config = config = RepoConfig(
            project=project,
            provider="local",
            registry=registry,
            online_store=online_store,
            entity_key_serialization_version=3,
        )
        self._feast = FeatureStore(config=config)
        self._feast.apply([DRIVER, *map(view, VIEWS)])
        self._views = [self._feast.get_feature_view(name) for name in VIEWS]
        self._store = get_online_store_from_config(config.online_store)

    def write(self, number: int, first: int) -> int:
        """Write `BATCH` rows of a view with newer events."""
        now = datetime.now(UTC)
        rows = [(key, VALUES, now, None) for key in KEYS[first : first + BATCH]]
        self._store.online_write_batch(self._config, self._views[number], rows, None)
        return len(rows)

    def fill(self) -> int:
        """Write the rows of all entities in all views."""
        return sum(self.write(number, first) for number in range(len(VIEWS)) for first in range(0, ENTITIES, BATCH))

    def read(self, count: int) -> int:
        """Read rows of one view."""
        rows = self._store.online_read(self._config, self._views[0], random.choices(KEYS, k=count), list(VALUES))
        return checked(rows)

    def features(self, count: int) -> int:
        """Read the features of all views."""
        names = [f"{name}:{feature}" for name in VIEWS for feature in VALUES]
        rows = [{"driver": number} for number in random.sample(range(ENTITIES), count)]
        values = self._feast.get_online_features(names, rows, full_feature_names=True).to_dict()
        return count * (len(values) == len(names) + 1)

    async def read_at_once(self, seconds: float) -> float:
        """Return the rows per second of concurrent asynchronous reads of one row."""
        ends_at, done = time.monotonic() + seconds, 0

        async def work() -> None:
            nonlocal done
            while time.monotonic() < ends_at:
                keys, names = [random.choice(KEYS)], list(VALUES)
                rows = await self._store.online_read_async(self._config, self._views[0], keys, names)
                done += checked(rows)

        await asyncio.gather(*(work() for _ in range(TASKS_AT_ONCE)))
        return done / seconds


def checked(rows: list[Any]) -> int:
    """Return the number of rows that have all features."""
    return sum(len(row[1] or ()) == FEATURES for row in rows)


def view(name: str) -> FeatureView:
    """Return a feature view. Its source is not used."""
    schema = [Field(name=feature, dtype=Float64) for feature in VALUES]
    source = FileSource(path="unused.parquet", timestamp_field="event_timestamp")
    return FeatureView(name=name, entities=[DRIVER], schema=schema, source=source)


def repeated(call: Callable[[], int], seconds: float) -> float:
    """Return the rows per second of repeated calls."""
    started, done = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        done += call()
    return done / (time.monotonic() - started)


def main() -> None:
    """Perform the tasks."""
    calls, runner = Calls(json.loads(sys.argv[1]), *sys.argv[2:]), asyncio.Runner()
    tasks: dict[str, Callable[[float], float]] = {
        "fill": lambda _: calls.fill(),
        "write": partial(repeated, lambda: calls.write(0, random.randrange(ENTITIES - BATCH))),
        "read 1": partial(repeated, lambda: calls.read(1)),
        "read many": partial(repeated, lambda: calls.read(BATCH)),
        "read 1 at once": lambda seconds: runner.run(calls.read_at_once(seconds)),
        "features": partial(repeated, lambda: calls.features(50)),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        name, _, seconds = line.rpartition(",")
        print(tasks[name](float(seconds)), flush=True)


if __name__ == "__main__":
    main()
