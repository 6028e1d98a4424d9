"""Ordered writes for the contract tests: sequences, superseded writes, refused writes and writes by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

from tableside.core.operations import NO_EXPIRY, Delete, Token, Write

from .words import put, update

Asked = Callable[[str], Write]
"""Makes a write of the record with the given key."""

FIRST, LAST, BEYOND_DOUBLES = -(2**63), 2**63 - 1, 2**53


def putting(order: int | None, value: dict[str, Any], **rest: Any) -> Asked:
    return partial(put, value=value, order=order, **rest)


def updating(order: int | None, document: object, **rest: Any) -> Asked:
    return partial(update, document=document, order=order, **rest)


def deleting(order: int | None, **rest: Any) -> Asked:
    return partial(Delete, order=order, **rest)


PUT = putting(5, {"a": 1, "b": 1})

CONVERGING: dict[str, tuple[list[Asked], dict[str, Any] | None]] = {
    "two puts": ([putting(4, {"a": 2, "c": 2}), PUT], {"a": 1, "b": 1}),
    "an update between puts": ([PUT, putting(6, {"b": 3}), updating(7, {"a": 2})], {"a": 2, "b": 3}),
    "updates of one member": ([PUT, updating(6, {"a": 9, "c": 1}), updating(7, {"a": 2})], {"a": 2, "b": 1, "c": 1}),
    "a newer delete": ([PUT, updating(6, {"a": 2}), deleting(7)], None),
    "an older delete": ([PUT, deleting(6), updating(7, {"b": 2})], {"b": 2}),
    "a put after a delete": ([deleting(4), PUT], {"a": 1, "b": 1}),
    "an update that names no member": ([PUT, deleting(6), updating(7, {})], {}),
    "a $set of no member": ([PUT, deleting(6), updating(7, {"$set": {}})], {}),
    "an older update that names no member": ([updating(4, {}), deleting(5)], None),
    "an update that only removes": ([PUT, deleting(6), updating(7, {"a": None})], {}),
    "a removed member": ([PUT, updating(6, {"a": 9, "c": 1}), updating(7, {"a": None})], {"b": 1, "c": 1}),
    "a removed member and a newer one": ([PUT, updating(6, {"$unset": ["a", "b"]}), updating(7, {"a": 7})], {"a": 7}),
    "objects and nulls are set whole": (
        [putting(5, {"a": {"x": 1}}), updating(6, {"$set": {"a": {"y": None}, "n": None}}), updating(4, {"a": 0})],
        {"a": {"y": None}, "n": None},
    ),
    "an array of updates": (
        [putting(5, {"c": 3, "d": 4}), updating(6, [{"a": 1, "b": 1}, {"$set": {"b": 2}, "$unset": {"c": True}}])],
        {"a": 1, "b": 2, "d": 4},
    ),
    "equal orders of two members": ([updating(6, {"a": 1}), updating(6, {"b": 2}), deleting(5)], {"a": 1, "b": 2}),
    "members like our own": (
        [putting(5, {"$": 0, "a.b": 1}), updating(7, [{"_t": 1}, {"a.b": 2}]), updating(6, {"a.b": 0, "'\"\\": 3})],
        {"$": 0, "_t": 1, "a.b": 2, "'\"\\": 3},
    ),
    "negative orders": ([putting(-1, {"a": -1}), updating(0, {"a": 0}), deleting(-2)], {"a": 0}),
    "the first and the last order": (
        [putting(FIRST, {"a": 1, "b": 1}), deleting(FIRST + 1), updating(LAST - 1, {"a": 2}), updating(LAST, {"a": 3})],
        {"a": 3},
    ),
    "orders that are the same double": (
        [
            putting(BEYOND_DOUBLES, {"a": 0, "b": 0}),
            putting(BEYOND_DOUBLES + 1, {"a": 1, "b": 1}),
            updating(LAST - 2, {"a": 2}),
            updating(LAST - 1, {"a": 3}),
        ],
        {"a": 3, "b": 1},
    ),
    "negative orders that are the same double": (
        [deleting(-BEYOND_DOUBLES - 2), putting(-BEYOND_DOUBLES - 1, {"a": 1}), updating(-BEYOND_DOUBLES, {"b": 2})],
        {"a": 1, "b": 2},
    ),
}  # fmt: skip
"""Writes of a record, and its value after all of them, whatever their sequence."""

SUPERSEDED: dict[str, tuple[list[Asked], Asked, bool]] = {
    "a put before a put": ([PUT], putting(4, {"a": 2}), True),
    "a put before a delete": ([deleting(5)], putting(4, {"a": 2}), True),
    "a delete before a put": ([PUT], deleting(4), True),
    "a delete before a delete": ([deleting(5)], deleting(4), True),
    "an update before a put": ([PUT], updating(4, {"a": 2}), True),
    "an update before a delete": ([deleting(5)], updating(4, {"a": 2}), True),
    "an update before updates of all its members": (
        [updating(5, {"a": 1}), updating(6, {"b": None})],
        updating(4, {"$set": {"a": 2}, "$unset": ["b"]}),
        True,
    ),
    "an update before an update of one of its members": ([updating(5, {"a": 1})], updating(4, {"a": 2, "b": 2}), False),
    "a put before an update": ([updating(5, {"a": 1})], putting(4, {"a": 2}), False),
    "a delete before an update": ([updating(5, {"a": 1})], deleting(4), False),
    "a put between a put and an update": ([putting(3, {}), updating(5, {"a": 1})], putting(4, {"a": 2}), False),
    "an update without members before a put": ([PUT], updating(4, {}), False),
    "an update without members before a delete": ([deleting(5)], updating(4, {}), False),
    "a put of the same order": ([PUT], putting(5, {"a": 2}), False),
    "an update of the same order": ([PUT], updating(5, {"a": 2}), False),
    "a delete of the same order": ([PUT], deleting(5), False),
    "a put of a deleted order": ([deleting(5)], putting(5, {"a": 2}), False),
    "the first order, of an absent record": ([], putting(FIRST, {}), False),
    "an update of an absent record": ([], updating(FIRST, {"a": None}), False),
    "a delete of an absent record": ([], deleting(FIRST), False),
    "a record without orders": ([putting(None, {"a": 1})], updating(FIRST, {"a": 2}), False),
}
"""Writes that have arrived, one more, and whether it is superseded."""

REFUSED: dict[str, Asked] = {
    "an object in a merge patch": updating(9, {"a": {"b": 1}}),
    "$inc": updating(9, {"$inc": {"n": 1}}),
    "another operator beside $set": updating(9, {"$set": {"a": 2}, "$push": {"b": 1}}),
    "a deeper path": updating(9, {"$set": {"a.b": 1}}),
    "a deeper path of $unset": updating(9, {"$unset": ["a.b"]}),
    "an operator in an array": updating(9, [{"a": 2}, {"$max": {"n": 1}}]),
    "an object in an array": updating(9, [{"a": 2}, {"b": {"c": 1}}]),
    "a default": updating(9, {"a": 2}, default={}),
    "if_match of an update": updating(9, {"a": 2}, if_match=("*",)),
    "if_match of a put": putting(9, {"a": 2}, if_match=("*",)),
    "if_match of a delete": deleting(9, if_match=("*",)),
    "if_absent": putting(9, {"a": 2}, if_absent=True),
    "an older operator": updating(1, {"$inc": {"n": 1}}),
}

BY_HAND: dict[str, tuple[Asked, dict[str, Any] | None]] = {
    "put": (putting(None, {"h": 1}), {"h": 1}),
    "update": (updating(None, {"$set": {"a.b": 1}, "$unset": ["b"]}), {"a": {"b": 1}}),
    "delete": (deleting(None), None),
    "put with a token": (putting(None, {"h": 1}, token=Token("w", 1)), {"h": 1}),
    "delete with a token": (deleting(None, token=Token("w", 1)), None),
}
"""Writes without an order, and the value after them. The record is {"a": {}, "b": 1} before."""

MEMORY_S = 1000
"""How long a table keeps the orders of absent records, in the following cases."""

INCREMENT = {"$inc": {"n": 1}}
KEPT_FOR_S: dict[str, tuple[list[Asked], int | None]] = {
    "a record without expiry": ([putting(5, {})], None),
    "an expiring record": ([putting(5, {}, ttl_s=60)], 60 + MEMORY_S),
    "an expiring record with a token": ([putting(5, {}, ttl_s=60, token=Token("w", 1))], 60 + MEMORY_S),
    "an expiring put by hand": ([PUT, putting(None, {}, ttl_s=60)], 60 + MEMORY_S),
    "a change of an expiring record": ([putting(5, {}, ttl_s=60), updating(None, {"a": {"b": 1}})], 60 + MEMORY_S),
    "an expiry that an update removes": ([putting(5, {}, ttl_s=60), updating(6, {}, ttl_s=NO_EXPIRY)], None),
    "an expiry that a put by hand removes": ([putting(5, {}, ttl_s=60), putting(None, {})], None),
    "a delete": ([deleting(5)], MEMORY_S),
    "a delete with a token": ([deleting(5, token=Token("w", 1))], 86_400),
    "a delete by hand": ([PUT, deleting(None)], MEMORY_S),
    "a put after a delete": ([deleting(5), putting(6, {})], None),
    "an expiring put by hand after a delete": ([deleting(5), putting(None, {}, ttl_s=60)], 60 + MEMORY_S),
    "a first update by hand after a delete": ([deleting(5), updating(None, INCREMENT, default={"n": 0})], None),
}
"""Writes of a record, and how long from then its orders are kept. None is as long as the record exists."""
