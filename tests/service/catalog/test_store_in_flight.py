"""How much of the in-flight limits one store may have, so that the other stores can be used when it hangs."""

import pytest
from prometheus_client import CollectorRegistry

from contract import put
from support.scripted import Scripted
from tableside.catalog.admission import InFlight, PartitionLimit, StoreInFlight
from tableside.core.errors import Overloaded
from tableside.core.operations import Get, Update, Written
from tableside.core.store import Scan
from tableside.core.updates import parse
from tableside.settings import LimitSettings

LIMITS = LimitSettings(in_flight_max=16, operations_in_flight_max=160, bytes_in_flight_max=1600, store_share_max=0.75)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def limits(registry: CollectorRegistry) -> InFlight:
    return InFlight(registry, LIMITS)


def fill(store: StoreInFlight, operations: int = 0, body_bytes: int = 0) -> int:
    """Add requests to a store until it takes no more, and return how many it took."""
    for count in range(1000):
        try:
            store.check(operations, body_bytes)
        except Overloaded:
            return count
        store.add(operations, body_bytes)
    raise AssertionError("no limit")


def test_each_store_has_a_share_of_the_remaining_limit(limits: InFlight) -> None:
    stores = [StoreInFlight(limits, name) for name in ("a", "b", "c", "d")]
    assert [fill(store) for store in stores] == [12, 3, 1, 1]
    for _ in range(12):
        stores[0].leave(0, 0)
    assert fill(stores[1]) == 7, "10 of the 14 that c and d leave"


@pytest.mark.parametrize(("operations", "body_bytes", "what"), [(10, 0, "operations"), (0, 100, "bytes")])
def test_operations_and_bytes_have_shares_too(
    limits: InFlight, registry: CollectorRegistry, operations: int, body_bytes: int, what: str
) -> None:
    limits.change(LIMITS.model_copy(update={"in_flight_max": 1000, "store_share_max": 0.5}))
    hung, other = StoreInFlight(limits, "hung"), StoreInFlight(limits, "other")
    assert fill(hung, operations, body_bytes) == 8
    hung.check(0, 0)
    with pytest.raises(Overloaded, match=rf"^store 'hung': .* {what} are in flight, .*\(store_share_max\)"):
        hung.check(operations, body_bytes)
    assert fill(other, operations, body_bytes) == 4
    hung.sample()
    seen = {"store": "hung", "what": what}
    assert registry.get_sample_value("tableside_store_in_flight", seen) == 8 * (operations + body_bytes)
    assert registry.get_sample_value("tableside_shed_total", {"reason": f"store_{what}"}) == 3


def test_an_idle_store_accepts_a_request_of_any_size(limits: InFlight) -> None:
    hung, other = StoreInFlight(limits, "hung"), StoreInFlight(limits, "other")
    fill(hung)
    other.check(1000, 1_000_000)
    other.add(1, 0)
    with pytest.raises(Overloaded):
        other.check(1000, 0)


def test_a_request_above_the_limit_is_admitted_alone(limits: InFlight) -> None:
    operations = limits.operations
    operations.enter(1)
    with pytest.raises(Overloaded):
        operations.enter(1000)
    operations.leave(1)
    operations.enter(1000)
    with pytest.raises(Overloaded):
        operations.enter(1)


async def test_a_partition_returns_the_rejection_as_the_outcome_of_each_operation(limits: InFlight) -> None:
    scripted, store = Scripted(), StoreInFlight(limits, "hung")
    limited = PartitionLimit(scripted, store)
    assert isinstance((await limited.apply([put("a")]))[0], Written)
    assert fill(store) == 12, "an operation that has ended is not in flight"
    outcomes = await limited.apply([Get("a"), Get("b")])
    assert [type(outcome) for outcome in outcomes] == [Overloaded] * 2
    for read in (limited.scan(Scan(1)), limited.splits(1)):
        with pytest.raises(Overloaded):
            await read
    assert len(scripted.calls) == 1


async def test_the_values_and_updates_of_a_partition_count_as_bytes(limits: InFlight) -> None:
    store = StoreInFlight(limits, "hung")
    store.add(0, 1195)
    limited = PartitionLimit(Scripted(), store)
    update = Update("a", parse({"$inc": {"n": 1}}), b'{"n":0}')
    for operation in (put("a", {"n": 1000}), update):
        assert isinstance((await limited.apply([operation]))[0], Overloaded)
    assert await limited.apply([Get("a")]) == [None]
