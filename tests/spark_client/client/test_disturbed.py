"""The clients for Python while responses are lost, the service restarts, and deadlines pass."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from servers.process import free_port
from servers.proxy import FaultProxy, Mode
from support.running import Service, running
from tableside_client import LoadError, Retries, TablesideError, Unavailable

pytestmark = pytest.mark.server

BRIEF = Retries(first_s=0.001, longest_s=0.002, total_s=0.2)


@pytest.fixture
async def proxy(service: Service) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", int(service.url.rpartition(":")[2])) as started:
        yield started


async def test_a_write_with_a_lost_response_counts_once(
    opened: Callable[..., Any], proxy: FaultProxy, name: str
) -> None:
    table = (await opened(f"http://127.0.0.1:{proxy.port}")).table(name)
    await table.put("a", {"n": 0})
    proxy.answer_lost(once=True)
    updated = await table.update("a", {"$inc": {"n": 1}})
    assert not updated.replayed  # The caller has written once.
    proxy.answer_lost(once=True)
    [outcome] = await table.batch([{"op": "update", "key": "a", "update": {"$inc": {"n": 1}}}])
    assert outcome.ok
    proxy.answer_lost(once=True)
    await table.put("b", {"n": 1}, if_absent=True)
    assert await table.get("a") == {"n": 2}


async def test_concurrent_updates_of_one_record_count_once_each(
    opened: Callable[..., Any], proxy: FaultProxy, name: str
) -> None:
    """The record remembers the last 8 writers only, so all these updates have to come from one."""
    table = (await opened(f"http://127.0.0.1:{proxy.port}")).table(name)
    await table.put("a", {"n": 0})
    updates = [asyncio.create_task(table.update("a", {"$inc": {"n": 1}})) for _ in range(60)]
    for _ in range(10):
        proxy.answer_lost(once=True)
        while proxy.mode is Mode.ANSWER_LOST and not all(update.done() for update in updates):
            await asyncio.sleep(0.001)
    proxy.forward()
    await asyncio.gather(*updates)
    assert await table.get("a") == {"n": 60}


async def test_calls_outlast_a_restart_of_the_service(opened: Callable[..., Any], tmp_path: Path) -> None:
    port = free_port()
    table = (await opened(f"http://127.0.0.1:{port}")).table("t")
    calls = [asyncio.create_task(table.update("a", {"$inc": {"n": 1}}, default={"n": 0})) for _ in range(20)]
    calls.append(asyncio.create_task(table.load((f"k{n}", {"n": n}) for n in range(2_500))))
    await asyncio.sleep(0.5)  # The first attempts fail.
    with ExitStack() as stack, ThreadPoolExecutor(1) as starter:  # The calls occupy asyncio's own threads.
        await asyncio.get_running_loop().run_in_executor(starter, stack.enter_context, running(tmp_path, port=port))
        await asyncio.gather(*calls)
        assert await table.get("a") == {"n": 20}


async def test_a_service_that_stays_down_is_unavailable(opened: Callable[..., Any]) -> None:
    table = (await opened(f"http://127.0.0.1:{free_port()}", retries=BRIEF)).table("t")
    for call in (table.get("a"), table.update("a", {"n": 1}), table.get_many(["a"])):
        with pytest.raises(Unavailable) as caught:
            await call
        assert (caught.value.code, caught.value.applied, caught.value.retriable) == ("service_unreachable", "no", True)
    [outcome] = await table.batch([{"op": "get", "key": "a"}])
    assert isinstance(outcome.error, Unavailable)
    with pytest.raises(LoadError, match=r"1000 records were not written.*stopped") as failed:
        await table.load((f"k{number}", {}) for number in range(100_000))
    assert (len(failed.value.failures), failed.value.retriable) == (1_000, True)


async def test_a_deadline_ends_a_call(opened: Callable[..., Any], proxy: FaultProxy, name: str) -> None:
    table = (await opened(f"http://127.0.0.1:{proxy.port}")).table(name, deadline_s=0.3)
    await table.put("a", {"n": 1})
    proxy.hang()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(table.get("a"), 30)
    proxy.cut()


async def test_a_wrong_token_is_access_denied_and_not_retried(opened: Callable[..., Any], guarded_url: str) -> None:
    table = (await opened(guarded_url, token="wrong")).table("t")
    with pytest.raises(TablesideError, match="unauthenticated"):
        await table.get("a")
    assert await (await opened(guarded_url, token="right")).table("t").get("a") is None


def test_errors_survive_pickling() -> None:
    failure = Unavailable("t", "throttled", 429, "too fast", retriable=True, applied="no", retry_after_s=1.0)
    copy = pickle.loads(pickle.dumps(failure))
    assert (type(copy), copy.retry_after_s, str(copy)) == (Unavailable, 1.0, str(failure))
