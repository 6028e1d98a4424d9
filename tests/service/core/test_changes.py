"""The changes of an update as text: the same changes with the same size, for short ones as objects."""

import msgspec
import pytest

from tableside.core import updates, values
from tableside.core.updates import PACKED_BYTES_MIN, PackedChanges, changes_bytes, joined, packed

LONG = "x" * PACKED_BYTES_MIN

NUMBERS = [0, -0.0, 0.1, 1e19, 1.8446744073709552e19, 1e300, 5e-324, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"b": None}, "s": LONG},
        {"$set": {"a.b": [1, {"c": LONG}], "ü\u2028.\U0001f600": True}, "$unset": ["n"]},
        {"$set": {"edits": {"patch": LONG}}, "$push": {"l": {"$each": [[], {}]}}},
        {"patch": {"edits": LONG}},
        [{"edits": LONG}, {"$inc": {"n": 1}}, {}],
        {"$set": {"numbers": NUMBERS, "s": LONG}},
    ],
)
def test_packed_changes_have_the_same_effect(document: object) -> None:
    changes = updates.parse(document)
    as_text = packed(changes)
    assert isinstance(as_text, PackedChanges)
    assert repr(tuple(as_text)) == repr(changes)
    assert packed(as_text) is as_text
    assert len(as_text) == len(changes)
    assert changes_bytes(as_text) == changes_bytes(changes) == len(msgspec.json.encode(changes))
    value = values.encode({"n": 1, "a": {"z": 2}})
    assert updates.apply(value, as_text) == updates.apply(value, changes)
    assert updates.touched_members(as_text) == updates.touched_members(changes)
    assert repr(joined([as_text, as_text])) == repr(joined([changes, changes]))


def test_short_changes_stay_objects() -> None:
    changes = updates.parse({"$inc": {"n": 1}})
    assert packed(changes) is changes
