"""Group commit: order, one sync for many writes, failures for the right writes, and a close that drains the queue."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from support.waiting import WAIT_MAX_S, eventually
from tableside.stores.rocksdb.group_commit import BYTES_PER_TURN_MAX, GroupCommit, Turn


class Disk:
    """A disk that counts syncs, and can be slow or fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.fails = False
        self.open = threading.Event()
        self.open.set()
        self.syncing = threading.Event()

    def sync(self) -> None:
        self.syncing.set()
        assert self.open.wait(WAIT_MAX_S)
        self.syncs += 1
        if self.fails:
            raise OSError("disk full")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def group(disk: Disk) -> AsyncIterator[GroupCommit[str]]:
    commits: GroupCommit[str] = GroupCommit(disk.sync, lambda error, result: f"{result}: {error}")
    yield commits
    disk.open.set()
    await commits.close()


async def test_work_runs_in_order_on_one_thread(group: GroupCommit[str]) -> None:
    done: list[int] = []
    threads = set()

    def work(number: int, turn: Turn) -> str:
        done.append(number)
        threads.add(threading.get_ident())
        return str(number)

    answers = await asyncio.gather(*(group.run(partial(work, number)) for number in range(500)))
    assert answers == [str(number) for number in range(500)]
    assert done == list(range(500))
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


async def test_waiting_writes_share_one_sync(group: GroupCommit[str], disk: Disk) -> None:
    disk.open.clear()
    first = asyncio.create_task(group.run(lambda turn: "first"))
    await eventually(disk.syncing.is_set)
    others = [asyncio.create_task(group.run(lambda turn: "other")) for _ in range(100)]
    await asyncio.sleep(0)
    assert not first.done()
    disk.open.set()
    await asyncio.gather(first, *others)
    assert disk.syncs == 2


async def test_work_of_several_turns_alternates_with_other_work(group: GroupCommit[str], disk: Disk) -> None:
    done: list[str] = []

    def work(name: str, turn: Turn) -> str:
        done.append(name)
        turn.spend(BYTES_PER_TURN_MAX)
        return name

    async def in_turns() -> None:
        for _ in range(3):
            await group.run(partial(work, "large"))

    await asyncio.gather(in_turns(), group.run(partial(work, "a")), group.run(partial(work, "b")))
    assert done == ["large", "a", "b", "large", "large"]


async def test_work_that_fails_fails_alone(group: GroupCommit[str]) -> None:
    def fails(turn: Turn) -> str:
        raise ValueError("this one")

    answers = await asyncio.gather(
        group.run(lambda turn: "a"), group.run(fails), group.run(lambda turn: "b"), return_exceptions=True
    )
    assert [answers[0], answers[2]] == ["a", "b"]
    assert isinstance(answers[1], ValueError)


async def test_an_exception_of_the_group_reaches_every_caller(disk: Disk) -> None:
    def faulty(error: Exception, result: str) -> str:
        raise LookupError("a fault")

    commits: GroupCommit[str] = GroupCommit(disk.sync, faulty)
    disk.fails = True
    answers = await asyncio.wait_for(
        asyncio.gather(commits.run(lambda turn: "a"), commits.run(lambda turn: "b"), return_exceptions=True), 5
    )
    assert [type(answer) for answer in answers] == [LookupError] * 2
    disk.fails = False
    assert await commits.run(lambda turn: "c") == "c"
    await commits.close()
