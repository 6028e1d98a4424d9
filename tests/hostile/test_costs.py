"""No request blocks others for long, works beyond its deadline, or takes more memory than it may.

A full run sends every input to every kind of store, and prints the costs. The usual run sends the worst of each
kind. A measurement that breaks the rule is repeated, because other processes disturb it only in one direction.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hostile.costly import WAIT_S
from hostile.places import EMBEDDED, REMOTE, Places, every, of_largest, of_store, service
from hostile.watched import Turns, Watch
from servers.shared import Connected, Servers

pytestmark = pytest.mark.server

USUAL = (
    *("PUT [1.0, ...]", "PUT too many [[[]], ...]", "PUT [doubles of 17 digits, ...]", "PUT one string, escapes"),
    *("PUT too deep at the end", "PUT too many no end", "PATCH $set, many deep paths apart"),
    *("PATCH $addToSet, $each integers", "PATCH array of $addToSet", "PATCH merge [1.0, ...]"),
    *("PATCH 10000 $addToSet and $set of integers", "PATCH $set of members", "GET members, fields"),
    *("batch get, fields", "batch of too many: {}", "batch a key of many arrays"),
    *("batch update, one key, $set, many deep paths apart", "batch get, large records, one field"),
    *("batch update, one key, $addToSet", "Arrow op=update one key, array of {}"),
    *("Arrow op=get a dictionary of structs", "Arrow op=get empty batches", "Arrow op=get zeros, zstd"),
    *("Arrow op=get views of one long text", "Arrow op=get members&fields=1", "Arrow op=put many columns"),
    *("Arrow op=put few, one string, escapes", "PATCH $min, many paths"),
    *("Arrow op=put a dictionary of one value", "Arrow op=put long partitions, zstd"),
    *("batch put, keys, [[[]], ...]", "batch update, one key, merge patch, deep"),
    *("Arrow op=put many, [[[]], ...]", "Arrow op=get large-#"),
    *(
        "scan large records, one field",
        "batch get, one large record",
        "batch get, large records",
        "console, members",
        "GET, long query a&",
        "GET, long Accept, q",
    ),
)
"""Inputs of the usual run, for a table in memory."""

USUAL_OF_STORES = (
    *("PUT [1.0, ...]", "PATCH $inc, many paths", "PATCH 10000 $addToSet and $set of integers", "scan expired"),
    *("batch update, large records, returned, one field", "batch update, one key, returned"),
)
"""Inputs of the usual run for the other stores."""

DAILY_STORES = ("redis", "postgres")
TRIES = 3


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory,
    shared_servers: Servers | Connected,
    pytestconfig: pytest.Config,
    full: bool,
) -> Iterator[Places]:
    """A service with a table in each kind of store. DynamoDB is only in a full run."""
    daily = pytestconfig.getoption("daily")
    remote = [name for name in REMOTE if full or (daily and name in DAILY_STORES)]
    addresses = {name: str(shared_servers.address(name)) for name in remote}
    with service(tmp_path_factory.mktemp("costs"), addresses) as started:
        yield started


@pytest.mark.parametrize(
    ("table", "name"),
    [
        *(("memory", name) for name in USUAL),
        *(("rocksdb", name) for name in USUAL_OF_STORES),
        *(pytest.param(*each, marks=pytest.mark.daily) for each in product(DAILY_STORES, USUAL_OF_STORES)),
    ],
)
def test_a_costly_request_keeps_the_limits_on_time_and_memory(places: Places, table: str, name: str) -> None:
    assert not faults(places, table, name)


@pytest.mark.parametrize(
    "table", ["memory", "rocksdb", *(pytest.param(name, marks=pytest.mark.daily) for name in DAILY_STORES)]
)
def test_the_largest_records_keep_the_limits(places: Places, table: str) -> None:
    found = {one.name: faults(places, table, one.name) for one in of_largest(places.bounds[table])}
    assert not {name: texts for name, texts in found.items() if texts}


@pytest.mark.full
@pytest.mark.parametrize("table", [*EMBEDDED, *REMOTE])
def test_no_request_exceeds_the_limits(places: Places, table: str) -> None:
    inputs = every if table == EMBEDDED[0] else of_store
    found = {one.name: faults(places, table, one.name) for one in inputs(places.bounds[table])}
    broken = {name: texts for name, texts in found.items() if texts}
    assert not broken, "\n".join(f"{name}: {'; '.join(texts)}" for name, texts in broken.items())


def faults(places: Places, table: str, name: str) -> list[str]:
    """Return the parts of the rule that an input breaks in each of several measurements."""
    cost = places.cost(table, places.input(table, name))
    for _ in range(TRIES - 1):
        if not cost.faults(WAIT_S):
            break
        cost = cost.least(places.cost(table, places.input(table, name)))
    print(f"{table}: {name}: {cost.summary}")
    return cost.faults(WAIT_S)


async def test_the_measurement_detects_a_blocked_loop(tmp_path: Path) -> None:
    turns = Turns(tmp_path / "turns")
    watch = Watch(turns)
    await asyncio.sleep(0.05)
    turns.reset()
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    await asyncio.sleep(0.05)
    watch.stop()
    assert turns.longest[0] >= 0.1
    assert turns.count > 1
