"""The deadline of one caller does not affect the callers that share its calls of the store."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from contract import put
from support.scripted import Scripted
from tableside.core.budget import Budget
from tableside.core.errors import DeadlineExceeded
from tableside.core.operations import Written
from tableside.policies.coalesce import Coalesce

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
BELOW_RESOLUTION_S = 0.0004
OTHERS = 20


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("linger_s", [0.0, 0.005])
def test_a_very_close_deadline_ends_only_its_own_caller(
    loop: Callable[[], asyncio.AbstractEventLoop], linger_s: float
) -> None:
    async def main() -> None:
        store = Scripted()
        store.takes_s = lambda operations: 0.02
        coalesce = Coalesce(store, operations_max=1000, bytes_max=2**22, linger_s=linger_s)
        now = asyncio.get_running_loop().time()
        first = coalesce.apply([put("first")], Budget(now + 30))
        hasty = coalesce.apply([put("hasty")], Budget(now + BELOW_RESOLUTION_S))
        others = [coalesce.apply([put(f"k{number}")], Budget(now + 30)) for number in range(OTHERS)]
        _, [outcome], *answers = await asyncio.gather(first, hasty, *others)
        assert isinstance(outcome, DeadlineExceeded)
        assert [type(answer) for [answer] in answers] == [Written] * OTHERS
        await coalesce.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
