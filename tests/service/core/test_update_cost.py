"""The cost of updates is bounded, and linear in their size and the size of the value."""

import itertools
import tracemalloc
from typing import Any

import pytest

from tableside.core import values
from tableside.core.changes import Edits
from tableside.core.errors import TooLarge
from tableside.core.json_text import ELEMENTS_MAX
from tableside.core.update_folding import fold
from tableside.core.updates import CHANGES_MAX, PATH_NAMES_MAX, PathSet, apply, overlap, parse


def test_an_array_that_replaces_another_is_hashed_again() -> None:
    changes = parse(
        [
            {"$addToSet": {"a": 1}},
            {"$set": {"a": [2]}},
            {"$addToSet": {"a": 1}},
            {"a": [3]},
            {"$addToSet": {"a": {"$each": [1, 2]}}},
            {"$unset": ["a"]},
            {"$addToSet": {"a": 3}},
        ]
    )
    assert apply(b'{"a":[1]}', changes) == b'{"a":[3]}'


@pytest.mark.parametrize(
    "document",
    [
        {"$addToSet": {"a": {"$each": list(range(ELEMENTS_MAX - 10))}}},
        {"$addToSet": {"a": {"$each": [{"k": number} for number in range(ELEMENTS_MAX // 2 - 10)]}}},
        {"$addToSet": {"a": -1}},
        [{"$addToSet": {"a": number}} for number in range(CHANGES_MAX)],
        {"$set": {f"p{number}{'.a' * 28}": 1 for number in range(PATH_NAMES_MAX // 29)}},
    ],
    ids=["each", "each of objects", "one", "array", "deep paths"],
)
@pytest.mark.parametrize("before", [{}, {"a": list(range(ELEMENTS_MAX // 2))}], ids=["empty", "large"])
def test_an_update_takes_a_bounded_amount_of_memory(document: Any, before: Any) -> None:
    text = values.encode(before)
    tracemalloc.start()
    try:
        changes = parse(document)
        try:
            apply(text, changes)
        except TooLarge:
            assert before
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26


def test_the_paths_of_an_update_have_a_limit_of_names() -> None:
    def document(paths: int) -> dict[str, Any]:
        return {"$set": {".".join([f"p{number}", *"a" * 19]): 1 for number in range(paths)}}

    most = PATH_NAMES_MAX // 20
    [edits] = parse(document(most))
    assert isinstance(edits, Edits)
    assert len(edits.edits) == most
    for refused in (document(most + 1), [document(most), {"$inc": {"n": 1}}]):
        with pytest.raises(TooLarge, match=r"at most 50000 names \(path_names_max\)"):
            parse(refused)


def test_a_path_of_too_many_names_is_rejected_before_it_is_divided() -> None:
    document = {"$set": {"a." * 10 * PATH_NAMES_MAX + "a": 1}}
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="path_names_max"):
            parse(document)
        assert tracemalloc.get_traced_memory()[1] < PATH_NAMES_MAX
    finally:
        tracemalloc.stop()


def test_neither_a_record_nor_the_result_of_an_update_may_have_more_elements_than_the_limit() -> None:
    full = b'{"a":[%b]}' % b",".join([b"1"] * (ELEMENTS_MAX - 2))
    assert len(apply(full, parse({"$unset": ["a"]}))) == 2
    with pytest.raises(TooLarge, match="elements_max"):
        apply(full, parse({"$push": {"a": {"$each": [1, 2, 3]}}}))
    with pytest.raises(TooLarge, match="elements_max"):
        apply(full.replace(b"[1", b"[1,1,1,1", 1), parse({"$unset": ["a"]}))


def test_folding_does_not_change_the_updates() -> None:
    documents: list[Any] = [{"$push": {"a": 1}}, {"$push": {"a": 2}}, {"$push": {"a": 3}}]
    documents += [{"m": {"x": {"y": 1}}}, {"m": {"x": {"z": 1}}, "n": {"o": {}}}, {"n": {"o": {"p": 1}}}]
    many = [parse(document) for document in documents]
    assert fold(many) == parse(
        [{"$push": {"a": {"$each": [1, 2, 3]}}}, {"m": {"x": {"y": 1, "z": 1}}, "n": {"o": {"p": 1}}}]
    )
    assert many == [parse(document) for document in documents]


PATHS = [path for length in (1, 2, 3) for path in itertools.product("ab", repeat=length)]


@pytest.mark.parametrize("first", PATHS, ids=".".join)
@pytest.mark.parametrize("second", PATHS, ids=".".join)
def test_a_set_of_paths_rejects_exactly_overlapping_paths(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    paths = PathSet()
    assert paths.add(first)
    assert paths.overlaps(second) == overlap(first, second)
    assert paths.add(second) != overlap(first, second)
    assert not paths.add(first)
