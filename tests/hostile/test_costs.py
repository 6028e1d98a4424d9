"""No request blocks others for long, works beyond its deadline, or takes more memory than it may.

Every input is sent to a table in memory, and those whose cost depends on the store also to a table in each other kind.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hostile.tables import INPUTS, REMOTE, STORE_INPUTS, Tables, tables
from hostile.watched import Watch
from servers.shared import Connected, Servers

pytestmark = pytest.mark.server

DAILY = ("redis", "postgres")


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory,
    shared_servers: Servers | Connected,
    pytestconfig: pytest.Config,
    full: bool,
) -> Iterator[Tables]:
    """A service with a table in each kind of store. DynamoDB is only in a full run."""
    remote = REMOTE if full else DAILY if pytestconfig.getoption("daily") else ()
    addresses = {name: str(shared_servers.address(name)) for name in remote}
    with tables(tmp_path_factory.mktemp("costs"), addresses) as started:
        yield started


@pytest.mark.parametrize(
    ("table", "name"),
    [
        *product(["memory"], INPUTS),
        *product(["rocksdb"], STORE_INPUTS),
        *(pytest.param(*case, marks=pytest.mark.daily) for case in product(DAILY, STORE_INPUTS)),
        *(pytest.param(*case, marks=pytest.mark.full) for case in product(["dynamodb"], STORE_INPUTS)),
    ],
)
def test_a_costly_request_keeps_the_limits_on_time_and_memory(measured: Tables, table: str, name: str) -> None:
    cost = measured.cost(table, name)
    print(f"{table}: {name}: {cost.summary}")
    assert not cost.faults


async def test_the_measurement_detects_a_blocked_loop(tmp_path: Path) -> None:
    watch = Watch()
    watching = asyncio.create_task(watch.run(tmp_path / "turns"))
    await asyncio.sleep(0.05)
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0.05)
    watching.cancel()
    await asyncio.wait([watching])
    assert watch.longest[0] >= 0.1
