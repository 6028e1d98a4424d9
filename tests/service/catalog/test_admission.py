"""Which requests are admitted at the same time, and which are rejected."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry

from tableside.catalog.admission import AdmissionMetrics, InFlight, InFlightLimit, Reservation
from tableside.core.errors import Overloaded


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def in_flight(registry: CollectorRegistry) -> InFlight:
    return InFlight(AdmissionMetrics(registry), requests_max=2, operations_max=10, bytes_max=100)


def under_way(registry: CollectorRegistry, in_flight: InFlight, what: str) -> float | None:
    in_flight.sample()
    return registry.get_sample_value("tableside_in_flight", {"what": what})


def refused(bound: InFlightLimit, count: int) -> bool:
    try:
        bound.enter(count)
    except Overloaded:
        return True
    bound.leave(count)
    return False


@contextmanager
def occupied(bound: InFlightLimit, count: int) -> Iterator[None]:
    bound.enter(count)
    yield
    bound.leave(count)


def test_a_request_above_the_limit_is_admitted_alone(in_flight: InFlight) -> None:
    operations = in_flight.operations
    assert not refused(operations, 1000)
    with occupied(operations, 1):
        assert refused(operations, 1000)
    with occupied(operations, 1000):
        assert refused(operations, 1)


def test_a_reservation_grows_beyond_the_limit_only_alone(in_flight: InFlight, registry: CollectorRegistry) -> None:
    share, other = Reservation(in_flight), Reservation(in_flight)
    share.grow_body_to(60)
    share.grow_body_to(160)
    with pytest.raises(Overloaded):
        other.grow_body_to(1)
    share.leave()
    other.grow_body_to(50)
    share.grow_body_to(50)
    with pytest.raises(Overloaded):
        share.grow_body_to(51)
    assert under_way(registry, in_flight, "bytes") == 100
    share.leave()
    other.leave()
    assert under_way(registry, in_flight, "bytes") == 0


def test_a_changed_limit_applies_immediately(in_flight: InFlight) -> None:
    with occupied(in_flight.operations, 10):
        in_flight.change(requests_max=2, operations_max=12, bytes_max=100)
        assert not refused(in_flight.operations, 2)
        in_flight.change(requests_max=2, operations_max=5, bytes_max=100)
        assert refused(in_flight.operations, 1)


def test_the_share_of_callers_may_change_while_requests_are_in_flight(in_flight: InFlight) -> None:
    limits: dict[str, int] = {"requests_max": 9, "operations_max": 10, "bytes_max": 100}
    operations = in_flight.operations
    operations.enter(4, "loud")
    in_flight.change(**limits, caller_share_max=0.5)
    operations.enter(5, "loud")
    with pytest.raises(Overloaded, match=r"^caller 'loud': .*\(caller_share_max\)"):
        operations.enter(1, "loud")
    operations.enter(1, "quiet")
    operations.leave(4, "loud")
    in_flight.change(**limits, caller_share_max=1.0)
    operations.enter(3, "loud")
    for count, caller in ((5, "loud"), (3, "loud"), (1, "quiet")):
        operations.leave(count, caller)
    assert (operations.in_flight, operations.callers.in_flight) == (0, {})
