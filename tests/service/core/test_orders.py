"""Ordered writes of one record, compared with a computation from all acknowledged writes."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from contract import put, same, update
from support.naive_orders import Past, assignments, is_superseded, value_after
from tableside.core import values
from tableside.core.operations import Delete, Write, Written
from tableside.core.store import TableSpec
from tableside.core.transitions import Changed, Stored, transition

NOW_MS = 1_700_000_000_000
SPEC = TableSpec("t", ttl_s=100)


@dataclass(frozen=True)
class Asked:
    """A write, and its entry in a history."""

    write: Write
    past: Past


def asked(kind: str, order: int, document: Any, ttl_s: float | None = None) -> Asked:
    if kind == "put":
        return Asked(put("k", document, order=order, ttl_s=ttl_s), Past(kind, order, document))
    if kind == "delete":
        return Asked(Delete("k", order=order), Past(kind, order))
    write = update("k", document, order=order, ttl_s=ttl_s, returning=True)
    return Asked(write, Past(kind, order, assignments(document), ttl_s is not None))


class OneRecord:
    """A record that writes arrive at, and their history."""

    def __init__(self) -> None:
        self.stored: Stored | None = None
        self.history: list[Past] = []

    def write(self, asked: Asked) -> None:
        etag = f"{len(self.history)}"
        step = transition(self.stored, asked.write, SPEC, now_ms=NOW_MS, etag=etag)
        outcome = step.outcome
        assert isinstance(outcome, Written)
        assert outcome.superseded == is_superseded(self.history, asked.past), asked
        assert outcome.created == (asked.past.kind == "update" and self.value is None and isinstance(step, Changed))
        self.stored = step.stored if isinstance(step, Changed) else self.stored
        self.history.append(asked.past)
        assert same(self.value, value_after(self.history)), asked
        assert outcome.etag == (None if self.value is None else self.stored and self.stored.etag)
        if isinstance(asked.write, Delete) or not asked.write.returning:
            assert outcome.value is None
        else:
            assert same(None if outcome.value is None else values.decode(outcome.value), self.value)

    @property
    def value(self) -> Any:
        return None if self.stored is None or self.stored.value is None else values.decode(self.stored.value)


names = st.sampled_from(["a", "b", "c"])
members: st.SearchStrategy[Any] = st.none() | st.integers(0, 3) | st.sampled_from([[], {"x": {}}])
flat: st.SearchStrategy[Any] = st.dictionaries(names, st.none() | st.integers(0, 3) | st.just([]), max_size=3)
documents = {
    "put": st.dictionaries(names, members, max_size=3),
    "delete": st.none(),
    "update": flat
    | st.fixed_dictionaries({"$set": st.dictionaries(names, members, max_size=3)})
    | st.fixed_dictionaries({"$unset": st.lists(names, unique=True)})
    | st.lists(flat, max_size=2),
}
EDGES = [-(2**63), -(2**63) + 1, -(2**53) - 1, -(2**53), -1, 0, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
orders = st.lists(st.integers(1, 12) | st.sampled_from(EDGES), max_size=8, unique=True)
kinds = st.sampled_from(["put", "update", "update", "update", "delete"])


@st.composite
def writes(draw: st.DrawFn) -> list[Asked]:
    made = []
    for order in draw(orders):
        kind = draw(kinds)
        made.append(asked(kind, order, draw(documents[kind]), draw(st.sampled_from([None, None, -1, 50]))))
    return made


@given(sent=writes(), chance=st.randoms(use_true_random=False))
def test_every_permutation_with_repetitions_leaves_the_same_record(sent: list[Asked], chance: Any) -> None:
    wanted = value_after(sorted((one.past for one in sent), key=lambda past: past.order or 0))
    for _ in range(3):
        met = OneRecord()
        repeated = [*sent, *chance.choices(sent, k=len(sent))] if sent else []
        chance.shuffle(repeated)
        for one in repeated:
            met.write(one)
        assert same(met.value, wanted)


EVERY_KIND: list[tuple[str, Any]] = [
    *(("put", {"a": 1}), ("put", {}), ("delete", None), ("update", {"a": 1}), ("update", {"a": None, "b": 2})),
    *(("update", {}), ("update", {"$set": {"b": {}}}), ("update", {"$unset": ["a", "b"]})),
]


RANKS = [ranks for ranks in product((1, 2, 3), repeat=3) if {*ranks} == {*range(1, max(ranks) + 1)}]
"""Every relation of three orders."""


@pytest.mark.parametrize("first", EVERY_KIND, ids=repr)
def test_three_writes_of_every_kind_at_every_order(first: tuple[str, Any]) -> None:
    """Also at equal orders: the last of them is applied."""
    for second, third, ranks in product(EVERY_KIND, EVERY_KIND, RANKS):
        met = OneRecord()
        for order, (kind, document) in zip(ranks, (first, second, third), strict=True):
            met.write(asked(kind, order, document))
