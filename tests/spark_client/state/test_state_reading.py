"""Listing of the state in a table, and its removal."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_client.state.written import TABLES, Written, a_query, service
from tableside_client import Client
from tableside_spark import TableError
from tableside_spark.state import Place, Progress, QueryNotFound, State

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


@pytest.mark.parametrize("query", ["00000000-0000-4000-8000-000000000000", "nothing"])
def test_an_absent_query_is_not_found(state: State, query: str) -> None:
    with pytest.raises(QueryNotFound, match=f"has no state of query {query}"):
        state.query(query)
    with pytest.raises(QueryNotFound):
        state.delete(query)


def test_in_checkpoint_format_1_the_manifest_decides_the_version(written: Written, state: State) -> None:
    contents = state.contents(Place(written.query, 1, 0, "left-keyToNumValues"))
    assert [(each.number, each.uid, each.format) for each in contents.versions] == [
        (1, "older", None),
        (1, "newer", 1),
        (2, "older", None),
        (2, "newer", 1),
    ]


def test_many_versions_are_all_listed(client: Client) -> None:
    written = Written(client, "pair", str(uuid.uuid4()))
    for version in range(70, 270):
        written.attempt(f"{written.query}/0/0/default", version, "u")
    written.put(f"{written.query}/0/0/default", "floor", {"version": 70})
    seen = State(client, "pair").contents(Place(written.query, 0, 0, "default"))
    assert [version.number for version in seen.versions] == list(range(70, 270))


def test_removal_deletes_exactly_the_records_of_the_query(written: Written, state: State) -> None:
    other = Written(written.client, written.table, str(uuid.uuid4())[:-1] + written.query[-1])
    a_query(other)
    told: list[Progress] = []
    removed = state.delete(written.query, told.append)
    assert removed == len(written.records) == told[-1].removed
    places = _places(state, other, written) if written.table == "pair" else []
    assert [str(each.place) for each in told] == [*places, "None"]
    assert written.left() == set()
    assert other.left() == {"/".join(key) for key in other.records}
    with pytest.raises(QueryNotFound):
        state.query(written.query)
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


def test_a_query_with_only_its_description_left_is_removed(client: Client) -> None:
    query = str(uuid.uuid4())
    written = Written(client, "string", query)
    client.table("string").update(written.key("queries", query[-1]), {"$set": {query: True}}, default={})
    state = State(client, "string")
    assert state.query(query).stores == ()
    assert state.delete(query) == 0
    assert query not in [each.id for each in state.queries()]


def test_records_below_the_oldest_version_are_removed(written: Written, state: State) -> None:
    place = f"{written.query}/0/0/default"
    written.attempt(place, 1, "believed-dead")
    written.chunks(place, f"delta/{1:020d}/believed-dead", 1)
    assert state.delete(written.query) == len(written.records)
    assert written.left() == set()


def test_an_absent_table_is_rejected(client: Client) -> None:
    with State(client.url, "none") as state, pytest.raises(TableError, match="table_not_found"):
        state.queries()


def test_a_table_without_string_keys_is_rejected(client: Client) -> None:
    with pytest.raises(TableError, match="no table for state"):
        State(client, "other").queries()


def _places(state: State, other: Written, written: Written) -> list[str]:
    """Return the places of a removed query, derived from those of another query with the same structure."""
    places = [str(place).replace(other.query, written.query) for place in state.query(other.query).places()]
    return places[:3]  # the last one is empty


def killing_after(places: int) -> Callable[[Progress], None]:
    left = iter(range(places - 1))

    def raise_at_last(progress: Progress) -> None:
        if next(left, None) is None:
            raise Killed

    return raise_at_last
