"""Group commit: one sync for many writes, and long work that takes several turns."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from support.waiting import WAIT_MAX_S, eventually
from tableside.stores.rocksdb.group_commit import BYTES_PER_TURN_MAX, GroupCommit, Turn


class Disk:
    """A disk that counts syncs, and can be slow."""

    def __init__(self) -> None:
        self.syncs = 0
        self.open = threading.Event()
        self.open.set()
        self.syncing = threading.Event()

    def sync(self) -> None:
        self.syncing.set()
        assert self.open.wait(WAIT_MAX_S)
        self.syncs += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
async def group(disk: Disk) -> AsyncIterator[GroupCommit[str]]:
    commits: GroupCommit[str] = GroupCommit(disk.sync, lambda error, result: f"{result}: {error}")
    yield commits
    disk.open.set()
    await commits.close()


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
