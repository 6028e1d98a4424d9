"""The cost of updates is bounded, and linear in their size and the size of the value."""

from typing import Any

import pytest

from tableside.core.errors import TooLarge
from tableside.core.updates import PATH_NAMES_MAX, Edits, apply, parse
from tableside.core.values import ELEMENTS_MAX


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


def test_neither_a_record_nor_the_result_of_an_update_may_have_more_elements_than_the_limit() -> None:
    full = b'{"a":[%b]}' % b",".join([b"1"] * (ELEMENTS_MAX - 2))
    assert len(apply(full, parse({"$unset": ["a"]}))) == 2
    with pytest.raises(TooLarge, match="elements_max"):
        apply(full, parse({"$push": {"a": {"$each": [1, 2, 3]}}}))
    with pytest.raises(TooLarge, match="elements_max"):
        apply(full.replace(b"[1", b"[1,1,1,1", 1), parse({"$unset": ["a"]}))
