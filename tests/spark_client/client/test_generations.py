"""Replacing a table: readers see the old records, then the new ones, and a replacement that fails changes nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from spark_client.client.both import open_client
from support.running import Service, running
from tableside_client import (
    Client,
    FrameWriteError,
    GenerationNotFound,
    GenerationSealed,
    InvalidOperation,
    LoadError,
    PreconditionFailed,
)

pytestmark = pytest.mark.server

OLD = {"ada": {"n": 1}, "grace": {"n": 1}}
ROWS = {"k": ["ada", "alan"], "n": [2, 2]}
NEW = {"ada": {"n": 2}, "alan": {"n": 2}}

INPUTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "pairs": lambda: (iter(NEW.items()),),
    "arrow": lambda: (pa.table(ROWS), "k"),
    "pandas": lambda: (pd.DataFrame(ROWS), "k"),
    "polars": lambda: (pl.DataFrame(ROWS), "k"),
}


@pytest.fixture
async def filled(people: Any) -> Any:
    """A table with the records `OLD`."""
    await people.load(OLD.items())
    return people


async def records(table: Any) -> dict[str, Any]:
    return {record.key: record.value async for record in table.scan()}


async def states(table: Any) -> dict[int, str]:
    return {one.generation: one.state for one in await table.generations()}


@pytest.mark.parametrize("kind", INPUTS)
async def test_a_replaced_table_has_exactly_the_new_records_and_can_be_rolled_back(
    filled: Any, opened: Callable[..., Any], name: str, kind: str
) -> None:
    assert await filled.replace(*INPUTS[kind](), note="daily") == 2
    assert await records(filled) == NEW
    old, new = await filled.generations()
    assert (old.state, new.state, new.note) == ("kept", "current", "daily")
    numbered = (await opened()).table(f"{name}@1")
    assert await records(numbered) == OLD
    with pytest.raises(GenerationSealed, match="generation 1 is kept"):
        await numbered.put("ada", {})
    assert (await filled.activate(1, expected=2)).state == "current"
    assert await records(filled) == OLD
    with pytest.raises(PreconditionFailed):
        await filled.activate(2, expected=2)
    with pytest.raises(PreconditionFailed, match="current"):
        await filled.remove_generation(1)
    await filled.remove_generation(2)
    with pytest.raises(GenerationNotFound):
        await filled.activate(2)


async def test_a_table_that_does_not_exist_can_be_replaced(people: Any) -> None:
    assert await people.replace([("ada", {"n": 1})]) == 1
    assert await records(people) == {"ada": {"n": 1}}


class Broken:
    """Pairs whose second one cannot be read."""

    def __iter__(self) -> Iterator[Any]:
        yield "ada", {"n": 2}
        raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([],), {}, ValueError),
        (({"ada": {"n": float("nan")}}.items(),), {"on_error": [].append}, ValueError),
        (([("ada", {"n": 2}), ("", {})],), {}, LoadError),
        ((pa.table({"k": ["ada", None], "n": [2, 2]}), "k"), {}, FrameWriteError),
        ((pa.table({"k": pa.array([], pa.string())}), "k"), {}, ValueError),
        ((pa.table(ROWS), "absent"), {}, ValueError),
        ((pa.table(ROWS),), {}, TypeError),
        ((Broken(),), {}, RuntimeError),
    ],
)
async def test_a_replacement_that_fails_leaves_the_old_records_and_nothing_else(
    filled: Any, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await filled.replace(*arguments, **options)
    assert await records(filled) == OLD
    assert await states(filled) == {1: "current"}


async def test_a_replacement_without_the_records_that_failed(filled: Any) -> None:
    failures: list[Any] = []
    written = await filled.replace([("ada", {"n": 2}), ("", {}), ("alan", {"n": 2})], on_error=failures.extend)
    assert (written, await records(filled)) == (2, NEW)
    [(key, failure)] = failures
    assert (key, failure.code) == ("", "invalid_operation")
    assert await filled.replace([], allow_empty=True) == 0
    assert await records(filled) == {}


@pytest.mark.parametrize(("is_newer", "error"), [(True, GenerationNotFound), (False, PreconditionFailed)])
async def test_a_replacement_does_not_undo_the_activation_of_another_generation(
    filled: Any, service: Service, name: str, is_newer: bool, error: type[Exception]
) -> None:
    before = await filled.create_generation()
    sent, failures = [0], list[Any]()

    def pairs() -> Iterator[Any]:
        for n in range(20_000):
            if n == 1_500:
                with Client(service.url) as client:
                    table = client.table(name)
                    table.activate((table.create_generation() if is_newer else before).generation)
            sent[0] = n
            yield str(n), {"n": n}

    with pytest.raises(error):
        await filled.replace(pairs(), on_error=failures.extend)
    assert failures == []
    assert (sent[0] < 5_000) == is_newer, "a load ends when its generation is gone"
    assert await records(filled) == {}
    assert "loading" not in (await states(filled)).values()


async def test_a_cancelled_replacement_leaves_the_old_records(service: Service, name: str) -> None:
    async def endless() -> AsyncIterator[Any]:
        yield "ada", {"n": 2}
        await asyncio.sleep(3600)

    async with open_client("asyncio", service.url, {}) as client:
        table = client.table(name)
        await table.load(OLD.items())
        task = asyncio.create_task(table.replace(endless()))
        while "loading" not in (await states(table)).values():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await records(table), await states(table)) == (OLD, {1: "current"})


IDLE = """
stores: {s: {kind: memory}}
tables:
  pairs: {store: s, generations: true, generations_idle_s: 1, key: {who: string, at: integer}}
  plain: {store: s}
"""


@pytest.fixture(scope="module")
def idle_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that removes generations after a short time without a write."""
    directory = tmp_path_factory.mktemp("idle")
    (directory / "t.yaml").write_text(IDLE)
    with running(directory, directory / "t.yaml") as service:
        yield service.url


async def test_a_slow_replacement_is_not_removed_as_idle(
    opened: Callable[..., Any], request: pytest.FixtureRequest, idle_url: str
) -> None:
    def pairs() -> Iterator[Any]:
        time.sleep(8)
        yield ("ada", 7), {"n": 2}

    async def pairs_async() -> AsyncIterator[Any]:
        await asyncio.sleep(8)
        yield ("ada", 7), {"n": 2}

    slow = (await opened(idle_url)).table("pairs")
    assert await slow.replace(pairs_async() if request.node.callspec.params["opened"] == "asyncio" else pairs()) == 1
    assert [record.key async for record in slow.scan()] == [("ada", 7)]
    with pytest.raises(InvalidOperation, match="generations: true"):
        await (await opened(idle_url)).table("plain").replace(NEW.items())
