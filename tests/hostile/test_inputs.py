"""The costly inputs keep the limits of the service, and the measurement detects a blocked event loop."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from hostile import shapes
from hostile.bounds import Bounds
from hostile.inputs import every
from hostile.test_costs import USUAL, USUAL_OF_STORES
from hostile.watched import Turns, Watch
from tableside.core import values

SIZE_BYTES = 20_000
SMALL = Bounds(
    "t", body_bytes=2**16, operations=20, response_bytes=2**18, value_bytes=2**15, head_bytes=4000, changes=50
)


def test_the_inputs_of_the_usual_run_exist() -> None:
    known = Counter(one.name for one in every(Bounds("t", 2**24, 10_000, 2**26, 2**24)))
    assert {*USUAL, *USUAL_OF_STORES} <= known.keys()
    assert known.total() == len(known)


def test_inputs_keep_the_limit_on_bodies() -> None:
    # An Arrow stream may be longer: its schema alone exceeds the limit.
    longer = {one.name for one in every(SMALL) if len(one.make().body) > SMALL.body_bytes}
    assert all("Arrow" in name for name in longer), longer


@pytest.mark.parametrize("name", shapes.VALUES)
def test_a_value_is_legal_and_fills_its_size(name: str) -> None:
    text = shapes.VALUES[name](SIZE_BYTES)
    assert values.encode(values.parse(text))
    assert SIZE_BYTES * 0.9 < len(text) <= SIZE_BYTES


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
