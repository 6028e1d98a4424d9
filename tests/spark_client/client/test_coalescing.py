"""Concurrent single gets of one client share batches."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tableside_client import RecordNotFound, TablesideError
from tableside_client.concurrency import TaskCoalescer


@pytest.mark.server
async def test_concurrent_gets_return_the_requested_records(opened: Callable[..., Any], name: str) -> None:
    table = (await opened(coalesce=True)).table(name)
    await table.load((f"k{number}", {"n": number}) for number in range(300))
    values = await asyncio.gather(*(table.get(f"k{number}") for number in range(600)))
    assert values == [{"n": number} for number in range(300)] + [None] * 300
    with pytest.raises(TablesideError):
        await table.get("")
    assert await table.get("k1", fields=["absent"]) == {}


async def test_gets_wait_for_a_batch_in_flight_and_then_share_the_next() -> None:
    batches: list[Sequence[Any]] = []
    go_on = asyncio.Event()

    async def fetch(keys: Sequence[Any]) -> list[Any]:
        batches.append(keys)
        await go_on.wait()
        return [RecordNotFound("t", "record_not_found", 404, "") if key == 7 else {"key": key} for key in keys]

    coalescer = TaskCoalescer[dict[str, Any]](fetch)
    gets = []
    for key in range(10):
        gets.append(asyncio.create_task(coalescer.get(key)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    gets.append(asyncio.create_task(coalescer.get(9)))
    await asyncio.sleep(0)
    gets[8].cancel()
    go_on.set()
    values = await asyncio.gather(*gets, return_exceptions=True)
    assert batches == [[0], [1], [2, 3, 4, 5, 6, 7, 8, 9]]
    assert values[7] is None
    assert isinstance(values[8], asyncio.CancelledError)
    assert values[9] == values[10] == {"key": 9}
