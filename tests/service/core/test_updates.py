"""The update language: every operator, every rejection, the cases of RFC 7396, and joined updates."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st

from contract import same
from tableside.core import updates, values
from tableside.core.errors import InvalidOperation, TooLarge
from tableside.core.update_operators import SORT_VISITS, VISITED_ELEMENTS_MAX
from tableside.core.updates import PACKED_BYTES_MIN, PATH_NAMES_MAX, Changes, joined, parse
from tableside.core.values import ELEMENTS_MAX


def applied(value: dict[str, Any], document: object) -> Any:
    return values.decode(updates.apply(values.encode(value), parse(document)))


APPLIED: dict[str, tuple[dict[str, Any], object, object]] = {
    "$set a new member": ({"a": 1}, {"$set": {"b": [1, {"x": None}]}}, {"a": 1, "b": [1, {"x": None}]}),
    "$set along a path": ({"a": {"b": 1, "c": 2}}, {"$set": {"a.b": 3}}, {"a": {"b": 3, "c": 2}}),
    "$set makes parents": ({}, {"$set": {"a.b.c": 1}}, {"a": {"b": {"c": 1}}}),
    "$set an object as it is": ({"a": {"x": 1}}, {"$set": {"a": {"y": None}}}, {"a": {"y": None}}),
    "$set of dollar names inside": ({}, {"$set": {"a": {"$inc": 1}}}, {"a": {"$inc": 1}}),
    "$set a name of digits": ({"a": {"0": 1}}, {"$set": {"a.0": 2}}, {"a": {"0": 2}}),
    "$set makes numbers canonical": ({}, {"$set": {"a": [1.0, 1e3]}}, {"a": [1, 1000]}),
    "$unset by an array": ({"a": 1, "b": {"c": 1, "d": 2}}, {"$unset": ["a", "b.c"]}, {"b": {"d": 2}}),
    "$unset by an object of anything": ({"a": 1, "b": 2}, {"$unset": {"a": {"x": None}, "b": 1}}, {}),
    "$unset what is absent": ({"a": 1}, {"$unset": ["b", "c.d"]}, {"a": 1}),
    "$unset through a scalar": ({"a": 1}, {"$unset": ["a.b"]}, {"a": 1}),
    "$unset through an array": ({"a": [{"b": 1}]}, {"$unset": ["a.b"]}, {"a": [{"b": 1}]}),
    "$unset leaves an empty parent": ({"a": {"b": 1}}, {"$unset": ["a.b"]}, {"a": {}}),
    "$inc": ({"a": 1}, {"$inc": {"a": 2}}, {"a": 3}),
    "$inc of an absent member": ({}, {"$inc": {"a": 2, "b.c": 3}}, {"a": 2, "b": {"c": 3}}),
    "$inc an integer by a double": ({"a": 1}, {"$inc": {"a": 0.5}}, {"a": 1.5}),
    "$inc to a whole number": ({"a": 0.5}, {"$inc": {"a": 0.5}}, {"a": 1}),
    "$inc by a whole double": ({"a": 2**53}, {"$inc": {"a": 1.0}}, {"a": 2**53 + 1}),
    "$inc to the greatest integer": ({"a": 2**63 - 2}, {"$inc": {"a": 1}}, {"a": 2**63 - 1}),
    "$min of a smaller number": ({"a": 2}, {"$min": {"a": 1.5}}, {"a": 1.5}),
    "$min of an absent member": ({}, {"$min": {"a.b": 3}}, {"a": {"b": 3}}),
    "$min of strings": ({"a": "b"}, {"$min": {"a": "a"}}, {"a": "a"}),
    "$max of a greater number": ({"a": 2}, {"$max": {"a": 2.5}}, {"a": 2.5}),
    "$max of neighbours beyond a double": ({"a": 2**53}, {"$max": {"a": 2**53 + 1}}, {"a": 2**53 + 1}),
    "$max of strings by their bytes": ({"a": "\uffff"}, {"$max": {"a": "\U00010000"}}, {"a": "\U00010000"}),
    "$push an element": ({"a": [1]}, {"$push": {"a": 1}}, {"a": [1, 1]}),
    "$push an array as one element": ({"a": [1]}, {"$push": {"a": [2, 3]}}, {"a": [1, [2, 3]]}),
    "$push to what is absent": ({}, {"$push": {"a.b": 1}}, {"a": {"b": [1]}}),
    "$push each": ({"a": [1]}, {"$push": {"a": {"$each": [2, [3]]}}}, {"a": [1, 2, [3]]}),
    "$addToSet an element that is there": ({"a": [1, 1]}, {"$addToSet": {"a": 1}}, {"a": [1, 1]}),
    "$addToSet 1.0 where 1 is": ({"a": [1]}, {"$addToSet": {"a": 1.0}}, {"a": [1]}),
    "$addToSet tells true from 1": ({"a": [1]}, {"$addToSet": {"a": True}}, {"a": [1, True]}),
    "$addToSet looks past the order of members": (
        {"a": [{"x": 1, "y": {"p": 1, "q": 2}}]},
        {"$addToSet": {"a": {"y": {"q": 2, "p": 1}, "x": 1}}},
        {"a": [{"x": 1, "y": {"p": 1, "q": 2}}]},
    ),
    "$addToSet tells arrays by their order": ({"a": [[1, 2]]}, {"$addToSet": {"a": [2, 1]}}, {"a": [[1, 2], [2, 1]]}),
    "$addToSet each": ({"a": [1]}, {"$addToSet": {"a": {"$each": [1, 2, 2, 3]}}}, {"a": [1, 2, 3]}),
    "$addToSet to what is absent": ({}, {"$addToSet": {"a.b": 1}}, {"a": {"b": [1]}}),
    "$mul": ({"a": 3}, {"$mul": {"a": -2}}, {"a": -6}),
    "$mul of an absent member": ({}, {"$mul": {"a": 2, "b.c": 1.5}}, {"a": 0, "b": {"c": 0}}),
    "$mul beyond a double": ({"a": 2**53 + 1}, {"$mul": {"a": 3}}, {"a": 3 * (2**53 + 1)}),
    "$pull each equal element": ({"a": [1, 2, 1, [1], {"x": 1}]}, {"$pull": {"a": 1}}, {"a": [2, [1], {"x": 1}]}),
    "$pull 1 and not true or text": ({"a": [1, True, "1"]}, {"$pull": {"a": 1.0}}, {"a": [True, "1"]}),
    "$pull looks past the order of members": (
        {"a": [{"x": 1, "y": 2}, 3]},
        {"$pull": {"a": {"y": 2, "x": 1}}},
        {"a": [3]},
    ),
    "$pull compares whole elements": ({"a": [{"x": 1, "y": 2}]}, {"$pull": {"a": {"x": 1}}}, {"a": [{"x": 1, "y": 2}]}),
    "$pull in": ({"a": [1, 2, None, 3]}, {"$pull": {"a": {"$in": [3, None, 4]}}}, {"a": [1, 2]}),
    "$pull in elements with dollar names": ({"a": [{"$x": 1}]}, {"$pull": {"a": {"$in": [{"$x": 1}]}}}, {"a": []}),
    "$pull from what is absent": ({"a": {}}, {"$pull": {"a.b": 1, "c.d": 1, "e": 1}}, {"a": {}}),
    "$pull before and after $addToSet": (
        {"a": [1, 2]},
        [{"$addToSet": {"a": 3}}, {"$pull": {"a": 3}}, {"$addToSet": {"a": 3}}, {"$pull": {"a": 1}}],
        {"a": [2, 3]},
    ),
    "$push and keep the last": ({"a": [1, 2]}, {"$push": {"a": {"$each": [3, 4], "$slice": -3}}}, {"a": [2, 3, 4]}),
    "$push and keep the first": ({"a": [1, 2]}, {"$push": {"a": {"$each": [3, 4], "$slice": 3.0}}}, {"a": [1, 2, 3]}),
    "$push and keep more than there are": ({}, {"$push": {"a": {"$each": [1], "$slice": -(2**63)}}}, {"a": [1]}),
    "$push each of none to what is absent": ({}, {"$push": {"a": {"$each": []}}}, {"a": []}),
    "$push and keep none": ({"a": [1, 2]}, {"$push": {"a": {"$each": [3], "$slice": 0}}}, {"a": []}),
    "$push sorts before it cuts": (
        {"a": [5, 1]},
        {"$push": {"a": {"$each": [3], "$slice": 2, "$sort": 1}}},
        {"a": [1, 3]},
    ),
    "$push sorts by kind": (
        {"a": [True, "b", {"y": 1}, 2.5, None, "\U00010000", [1], "\uffff", 1]},
        {"$push": {"a": {"$each": [2**63 - 1, -1], "$sort": 1}}},
        {"a": [None, -1, 1, 2.5, 2**63 - 1, "b", "\uffff", "\U00010000", [1], True, {"y": 1}]},
    ),
    "$push sorts by a member": (
        {"a": [{"at": 2}, 7, {"at": 1, "n": 1}, {"at": None}]},
        {"$push": {"a": {"$each": [{"at": 1, "n": 2}, {"n": 3}], "$sort": {"at": 1}}}},
        {"a": [7, {"at": None}, {"n": 3}, {"at": 1, "n": 1}, {"at": 1, "n": 2}, {"at": 2}]},
    ),
    "$push sorts downwards and keeps equal ones in order": (
        {"a": [None, {"at": 1, "n": 1}, {"at": "x"}]},
        {"$push": {"a": {"$each": [{"at": 1, "n": 2}, {"at": 2}], "$sort": {"at": -1}}}},
        {"a": [{"at": "x"}, {"at": 2}, {"at": 1, "n": 1}, {"at": 1, "n": 2}, None]},
    ),
    "$addToSet after an array was replaced": (
        {"a": [1]},
        [{"$addToSet": {"a": 1}}, {"$set": {"a": [2]}}, {"$addToSet": {"a": {"$each": [1, 2]}}}],
        {"a": [2, 1]},
    ),
    "$addToSet after an array was cut": (
        {"a": [1, 2]},
        [
            {"$addToSet": {"a": 3}},
            {"$push": {"a": {"$each": [], "$slice": -1}}},
            {"$addToSet": {"a": {"$each": [1, 3]}}},
        ],
        {"a": [3, 1]},
    ),
    "$setOnInsert of a record": ({"a": 1}, {"$setOnInsert": {"a": 2, "b": 3}, "$inc": {"c": 1}}, {"a": 1, "c": 1}),
    "$setOnInsert through a scalar of a record": ({"a": 1}, {"$setOnInsert": {"a.b": 2}}, {"a": 1}),
    "several operators": (
        {"a": 1, "b": 2},
        {"$inc": {"a": 1}, "$unset": ["b"], "$set": {"c": 3}},
        {"a": 2, "c": 3},
    ),
    "an array, in order": ({"a": 1}, [{"$inc": {"a": 1}}, {"a": None}, {"$inc": {"a": 5}}], {"a": 5}),
    "an array of both languages": ({"a": 1}, [{"b": {"c": 1}}, {"$inc": {"b.c": 1}}], {"a": 1, "b": {"c": 2}}),
    "nothing": ({"a": 1}, {}, {"a": 1}),
    "a merge patch with dollar names inside": ({}, {"a": {"$set": 1}}, {"a": {"$set": 1}}),
    "a merge patch with dots in a name": ({"a": {"b": 1}}, {"a.b": 2}, {"a": {"b": 1}, "a.b": 2}),
    "a merge patch of null for what is absent": ({"a": 1}, {"b": None, "c": {"d": None}}, {"a": 1, "c": {}}),
}


@pytest.mark.parametrize("name", APPLIED)
def test_an_update_gives_the_expected_value(name: str) -> None:
    before, document, after = APPLIED[name]
    assert same(applied(before, document), after)


@pytest.mark.parametrize(
    ("document", "after"),
    [
        ({"$setOnInsert": {"a.b": [1], "n": 9}, "$inc": {"m": 1}}, {"a": {"b": [1]}, "n": 9, "m": 1}),
        ([{"$setOnInsert": {"a": 1}}, {"$setOnInsert": {"b": 1}, "$inc": {"n": 1}}], {"n": 1, "a": 1}),
        ([{}, {"$setOnInsert": {"a": 1}}], {"n": 0}),
    ],
    ids=str,
)
def test_set_on_insert_acts_in_the_first_update_of_a_default(document: object, after: object) -> None:
    assert same(values.decode(updates.apply(b'{"n":0}', parse(document), is_default=True)), after)


DEEP_28: Any = 1
for _ in range(28):
    DEEP_28 = {"d": DEEP_28}

REFUSED_BY_ANY_VALUE: dict[str, object] = {
    "an operator in another case": {"$SET": {"a": 1}},
    "$unset of a path and its parent": {"$unset": ["a", "a.b"]},
    "$unset of text": {"$unset": "a"},
    "$set of no object": {"$set": ["a"]},
    "$inc by true": {"$inc": {"a": True}},
    "$inc by too much": {"$inc": {"a": 2**63}},
    "$min of true": {"$min": {"a": True}},
    "$max of an array": {"$max": {"a": [1]}},
    "$mul by text": {"$mul": {"a": "1"}},
    "$push cut at half an element": {"$push": {"a": {"$each": [1], "$slice": 1.5}}},
    "$push sorted by two members": {"$push": {"a": {"$each": [1], "$sort": {"a": 1, "b": 1}}}},
    "$push sorted twice": {"$push": {"a": {"$each": [1], "$sort": 2}}},
    "$pull by a query of a member": {"$pull": {"a": {"x": {"$gt": 1}}}},
    "$pull in and more": {"$pull": {"a": {"$in": [1], "x": 1}}},
    "$pull an element that stands too deep": {"$pull": {"a.b": DEEP_28}},
    "$setOnInsert of a reserved name": {"$setOnInsert": {"_ts": 1}},
    "$setOnInsert in the second of an array": [{}, {"$setOnInsert": {"a": "\0"}}],
    "$push each of no array": {"$push": {"a": {"$each": 1}}},
    "an empty path": {"$set": {"": 1}},
    "a reserved parent": {"$inc": {"_tsx.a": 1}},
    "a reserved member": {"_ts": 1},
    "U+0000 in an element": {"$push": {"a": {"$each": ["\0"]}}},
    "U+0000 in a merge patch": {"a": ["x\0"]},
    "an empty name in a merge patch": {"a": {"": None}},
    "an integer beyond 64 bits": {"$set": {"a": [-(2**63) - 1]}},
    "an operand that stands too deep": {"$set": {"a.b.c": DEEP_28}},
    "a path that is too long": {"$set": {".".join(["a"] * 31): 1}},
    "a merge patch that is too deep": {"a": {"b": {"c": DEEP_28}}},
    "an array that holds no object": [{"a": 1}, 1],
    "a fault in the second of an array": [{"a": 1}, {"$foo": {}}],
}


@pytest.mark.parametrize("name", REFUSED_BY_ANY_VALUE)
def test_an_update_that_fits_no_value_is_rejected_by_the_parser(name: str) -> None:
    with pytest.raises(InvalidOperation):
        parse(REFUSED_BY_ANY_VALUE[name])


@pytest.mark.parametrize(
    "document",
    [{"$set": {"a.b": DEEP_28}}, {"$set": {".".join(["a"] * 30): 1}}, {"$push": {"a": DEEP_28}}, {"a": {"b": DEEP_28}}],
    ids=lambda document: str(document)[:30],
)
def test_a_nesting_depth_of_thirty_is_accepted(document: object) -> None:
    assert values.normalize(applied({}, document))


REFUSED: dict[str, tuple[dict[str, Any], object]] = {
    "$set through a scalar": ({"a": 1}, {"$set": {"a.b": 1}}),
    "$set through null": ({"a": None}, {"$set": {"a.b": 1}}),
    "$set through an array": ({"a": [{}]}, {"$set": {"a.0": 1}}),
    "$inc of true": ({"a": True}, {"$inc": {"a": 1}}),
    "$inc past the greatest double": ({"a": 1.7e308}, {"$inc": {"a": 1.7e308}}),
    "$mul of text": ({"a": "1"}, {"$mul": {"a": 1}}),
    "$pull from a scalar": ({"a": 1}, {"$pull": {"a": 1}}),
    "$push and cut a scalar": ({"a": 1}, {"$push": {"a": {"$each": [], "$slice": 0}}}),
    "$min of text and number": ({"a": "1"}, {"$min": {"a": 1}}),
    "$push to a scalar": ({"a": 1}, {"$push": {"a": 1}}),
    "the second of an array": ({"a": 1}, [{"$set": {"b": 1}}, {"$push": {"a": 1}}]),
    "an overflow that a later change would undo": ({"a": 2**63 - 1}, [{"$inc": {"a": 1}}, {"$inc": {"a": -1}}]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_update_that_does_not_fit_is_refused(name: str) -> None:
    before, document = REFUSED[name]
    with pytest.raises(InvalidOperation):
        applied(before, document)


LONG = "x" * 200
CUT = "x" * 79 + "…"
KNOWN = "$set, $unset, $inc, $min, $max, $mul, $push, $addToSet, $pull, $setOnInsert"

DETAILS: list[tuple[dict[str, Any], object, str]] = [
    ({"a": {"b": "hunter2"}}, {"$inc": {"a.b": 1}}, "`$inc` at `a.b`: the field is a string, not a number"),
    ({"a": 2**63 - 1}, {"$inc": {"a": 1}}, "`$inc` at `a`: the sum is out of range"),
    ({"a": None}, {"$addToSet": {"a": 1}}, "`$addToSet` at `a`: the field is null, not an array"),
    ({"a": {"b": [1]}}, {"$set": {"a.b.c": 1}}, "`$set` at `a.b.c`: `a.b` is an array, not an object"),
    ({"a": "hunter2"}, {"$max": {"a": 1}}, "`$max` at `a`: the field is a string, but the operand is a number"),
    ({LONG: "x"}, {"$inc": {LONG: 1}}, f"`$inc` at `{CUT}`: the field is a string, not a number"),
    ({"a\n": "x"}, {"$inc": {"a\n": 1}}, "`$inc` at `a\\n`: the field is a string, not a number"),
    ({}, {"$inc": {"a.b": "hunter2"}}, "`$inc` at `a.b`: the operand is a string, not a number"),
    ({}, {"$min": {"a": None}}, "`$min` at `a`: the operand is null, neither a number nor a string"),
    ({}, {"$push": {"a": {"$each": [], "b": 1}}}, "`$push` at `a`: `$each` does not allow `b` beside it"),
    ({}, {"$push": {"a": {"$sort": 1}}}, "`$push` at `a`: `$sort` is a modifier of `$each`, which is missing"),
    ({}, {"$pull": {"a": {"$gt": 1}}}, "`$pull` at `a`: `$gt` is not supported: the operand is an element, or `$in`"),
    ({"a": 2**62}, {"$mul": {"a": 4}}, "`$mul` at `a`: the product is out of range"),
    ({}, {"$set": {"a": "hunter2\0"}}, "`$set` at `a`: a string contains U+0000"),
    ({}, {"$set": {"a..b": 1}}, "`$set` at `a..b`: a name in the path is empty"),
    ({}, {"$set": {"_tsx": 1}}, "`$set` at `_tsx`: a top-level member's name may not begin with _ts"),
    ({}, {"$unset": ["a", 1]}, "`$unset`: an element of the array is a number, not a path"),
    ({}, {"$set": {"a": 1}, "$inc": {"a": 1}}, "`$inc` at `a`: `$set` has the same path"),
    ({}, {"$set": {"a.b": 1}, "$inc": {"a": 1}}, "`$inc` at `a`: another operator has a path below it"),
    ({}, {"$incr": {"a": 1}}, f"unknown operator `$incr`; known are {KNOWN}"),
    ({}, {"$" + LONG: 1}, f"unknown operator `${CUT[1:]}`; known are {KNOWN}"),
    ({}, {"$set": {"a": 1}, "b": 2}, "an update mixes operators and members: `$set` and `b`"),
    ({}, "hunter2", "an update is an object or an array of objects, not a string"),
]


@pytest.mark.parametrize(("before", "document", "detail"), DETAILS, ids=[detail[:60] for _, _, detail in DETAILS])
def test_a_rejection_names_the_operator_the_path_and_the_reason_but_no_value(
    before: dict[str, Any], document: object, detail: str
) -> None:
    with pytest.raises(InvalidOperation) as rejection:
        applied(before, document)
    assert rejection.value.detail == detail


SORT = {"$push": {"a": {"$each": [], "$sort": 1}}}

RFC_7396_APPENDIX_A: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396_APPENDIX_A, ids=str)
def test_the_cases_of_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    # A value and a merge patch are objects here, so every case is also wrapped in a member.
    wanted = {} if result is None else {"m": result}
    assert same(applied({"m": target}, {"m": patch}), wanted)
    if isinstance(target, dict) and isinstance(patch, dict):
        assert same(applied(target, patch), result)


# By example from nowhere

names = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 2**53, 2**63 - 1, -(2**63), 0.5, 1.0, -0.0, 1.5e308, 1e18, 2.0**63]),
    st.sampled_from(["", "a", "b", "ü"]),
)
members = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=5
)
objects = st.dictionaries(names, members, max_size=3)
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
elements = members | st.builds(lambda each: {"$each": each}, st.lists(members, max_size=3))
directions = st.sampled_from([1, -1])
modifiers = st.fixed_dictionaries(
    {"$each": st.lists(members, max_size=3)},
    optional={
        "$slice": st.integers(-3, 3),
        "$sort": directions | st.dictionaries(names, directions, min_size=1, max_size=1),
    },
)
pulled = members | st.builds(lambda each: {"$in": each}, st.lists(members, max_size=3))
operator_documents = st.fixed_dictionaries(
    {},
    optional={
        "$set": st.dictionaries(paths, members, max_size=2),
        "$unset": st.lists(paths, max_size=2) | st.dictionaries(paths, st.none(), max_size=2),
        "$inc": st.dictionaries(paths, scalars, max_size=2),
        "$min": st.dictionaries(paths, scalars, max_size=2),
        "$max": st.dictionaries(paths, scalars, max_size=2),
        "$mul": st.dictionaries(paths, scalars, max_size=2),
        "$push": st.dictionaries(paths, elements | modifiers, max_size=2),
        "$addToSet": st.dictionaries(paths, elements, max_size=2),
        "$pull": st.dictionaries(paths, pulled, max_size=2),
        "$setOnInsert": st.dictionaries(paths, members, max_size=2),
    },
)
changes = operator_documents | objects
documents = changes | st.lists(changes, max_size=3)


def parsed(document: object) -> Changes | None:
    try:
        return parse(document)
    except InvalidOperation:
        return None


def outcome(value: bytes, *each: Changes) -> object:
    try:
        for one in each:
            value = updates.apply(value, one)
    except InvalidOperation:
        return "refused"
    return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)


legal_documents = documents.map(parsed).filter(lambda found: found is not None)
legal_changes: Any = legal_documents


@settings(max_examples=200, deadline=None)
@given(objects, legal_changes, legal_changes)
def test_two_joined_updates_equal_two_separate_ones(value: dict[str, Any], first: Changes, second: Changes) -> None:
    text = values.encode(value)
    assert outcome(text, joined([first, second])) == outcome(text, first, second)


@settings(max_examples=150, deadline=None)
@given(objects, legal_changes)
def test_no_update_creates_an_invalid_value(value: dict[str, Any], change: Changes) -> None:
    try:
        result = updates.apply(values.encode(value), change)
    except InvalidOperation:
        return
    assert orjson.dumps(values.normalize(values.decode(result))) == result


@settings(max_examples=150, deadline=None)
@given(objects, legal_changes)
def test_applying_an_update_does_not_change_it(value: dict[str, Any], change: Changes) -> None:
    text = values.encode(value)
    before = repr(change)
    first = outcome(text, change)
    assert repr(change) == before
    assert outcome(text, change) == first


@pytest.mark.parametrize("first", [[], {"$setOnInsert": {"a": 1}}], ids=str)
def test_only_the_first_of_joined_updates_can_meet_a_new_record(first: object) -> None:
    later = {"$setOnInsert": {"b": 1}, "$set": {"c": 1}}
    assert joined([parse(first), parse(later)]) == Changes.of([*parse(first), *parse({"$set": {"c": 1}})])


@pytest.mark.parametrize(
    ("edit", "times"),
    [({"$pull": {"a": 1}}, 1), ({"$push": {"a": {"$each": [], "$slice": 1000}}}, 1), (SORT, SORT_VISITS)],
    ids=str,
)
def test_an_update_visits_a_bounded_number_of_elements(edit: object, times: int) -> None:
    count = VISITED_ELEMENTS_MAX // 1000 // times
    before = {"a": [2] * 1000}
    assert applied(before, [edit] * count) == before
    with pytest.raises(TooLarge, match="visited_elements_max"):
        applied(before, [edit] * (count + 1))


def test_the_number_of_changes_in_an_array_is_limited() -> None:
    assert len([*parse([{}] * updates.CHANGES_MAX)]) == updates.CHANGES_MAX
    with pytest.raises(TooLarge, match="at most 10000 changes"):
        parse([{}] * (updates.CHANGES_MAX + 1))


def test_the_paths_of_an_update_have_a_limit_of_names() -> None:
    def document(paths: int) -> dict[str, Any]:
        return {"$set": {".".join([f"p{number}", *"a" * 19]): 1 for number in range(paths)}}

    most = PATH_NAMES_MAX // 20
    assert parse(document(most))
    for refused in (document(most + 1), [document(most), {"$inc": {"n": 1}}]):
        with pytest.raises(TooLarge, match=r"at most 50000 names \(path_names_max\)"):
            parse(refused)


def test_neither_a_record_nor_the_result_of_an_update_may_have_more_elements_than_the_limit() -> None:
    full = b'{"a":[%b]}' % b",".join([b"1"] * (ELEMENTS_MAX - 2))
    assert len(updates.apply(full, parse({"$unset": ["a"]}))) == 2
    with pytest.raises(TooLarge, match="elements_max"):
        updates.apply(full, parse({"$push": {"a": {"$each": [1, 2, 3]}}}))
    with pytest.raises(TooLarge, match="elements_max"):
        updates.apply(full.replace(b"[1", b"[1,1,1,1", 1), parse({"$unset": ["a"]}))


@pytest.mark.parametrize(
    "document",
    [
        {"a": {"b": None}, "s": "x" * PACKED_BYTES_MIN},
        {"$set": {"a.b": [1, -0.0, 1e300, 2**63 - 1], "ü\u2028.\U0001f600": "x" * PACKED_BYTES_MIN}, "$unset": ["n"]},
        [{"edits": "x" * PACKED_BYTES_MIN}, {"$push": {"l": {"$each": [[], {}]}}}, {}],
    ],
    ids=lambda document: str(document)[:20],
)
def test_a_long_update_that_is_kept_as_text_has_the_same_effect(
    document: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_text, value = parse(document), values.encode({"n": 1, "a": {"z": 2}})
    monkeypatch.setattr(updates, "PACKED_BYTES_MIN", len(as_text.text) + 1)
    kept = parse(document)
    assert as_text.kept is None
    assert kept.kept is not None
    assert repr(tuple(as_text)) == repr(kept.kept)
    assert updates.apply(value, as_text) == updates.apply(value, kept)
    assert joined([as_text, as_text]) == joined([kept, kept])
