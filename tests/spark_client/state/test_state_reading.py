"""Listing of the state in a table, and its removal."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_client.state.written import TABLES, Written, a_query, service
from tableside_client import Client
from tableside_spark import TableError
from tableside_spark.state import Progress, QueryNotFound, State

pytestmark = pytest.mark.server


class Killed(Exception):
    """The exception that a test raises to interrupt a removal."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with service(tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture(params=TABLES)
def written(request: pytest.FixtureRequest, client: Client) -> Written:
    """A separate query for each test, in a table with each kind of key."""
    found = Written(client, request.param, str(uuid.uuid4()))
    a_query(found)
    return found


@pytest.fixture
def state(written: Written) -> State:
    return State(written.client, written.table)


def test_removal_deletes_exactly_the_records_of_the_query(written: Written, state: State) -> None:
    other = Written(written.client, written.table, str(uuid.uuid4())[:-1] + written.query[-1])
    a_query(other)
    told: list[Progress] = []
    removed = state.delete(written.query, told.append)
    assert removed == len(written.records) == told[-1].removed
    assert written.left() == set()
    assert other.left() == {"/".join(key) for key in other.records}
    for absent in (written.query, "nothing"):
        with pytest.raises(QueryNotFound, match=f"has no state of query {absent}"):
            state.query(absent)
        with pytest.raises(QueryNotFound):
            state.delete(absent)
    assert state.query(other.query).operators == (0, 1)


@pytest.mark.parametrize("places", [1, 3, 4])
def test_an_interrupted_removal_is_completed_by_the_next(client: Client, places: int) -> None:
    """Interrupt a removal after some places, as if the process had ended."""
    written = Written(client, "pair", str(uuid.uuid4()))
    a_query(written)
    state = State(client, "pair")
    with pytest.raises(Killed):
        state.delete(written.query, killing_after(places))
    state.delete(written.query)
    assert written.left() == set()
    assert written.query not in [each.id for each in state.queries()]


def test_records_below_the_oldest_version_are_removed(written: Written, state: State) -> None:
    place = f"{written.query}/0/0/default"
    written.attempt(place, 1, "believed-dead")
    written.chunks(place, f"delta/{1:020d}/believed-dead", 1)
    assert state.delete(written.query) == len(written.records)
    assert written.left() == set()


def test_an_absent_or_unsuitable_table_is_rejected(client: Client) -> None:
    for table, why in (("none", "table_not_found"), ("other", "no table for state")):
        with pytest.raises(TableError, match=why):
            State(client, table).queries()


def killing_after(places: int) -> Callable[[Progress], None]:
    left = iter(range(places - 1))

    def raise_at_last(progress: Progress) -> None:
        if next(left, None) is None:
            raise Killed

    return raise_at_last
