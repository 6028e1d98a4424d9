"""Collects records of a page, in columns or as objects. The limit on its bytes includes keys as JSON shows them."""

import json
from collections.abc import Sequence

import pytest

from tableside.core import (
    Key,
    PageBuilder,
    Record,
    Results,
    Scan,
)
from tableside.core.operations import key_bytes

RECORD = Record(b"{}", "e")
WIDE = ("\1" * 1024,) * 8


@pytest.mark.parametrize("key", ["a", "key-000123", "ü" * 100, "\1" * 1024, ("a", 7), WIDE, 7, 2**63 - 1, -(2**63)])
def test_a_key_counts_with_its_size_in_json(key: Key) -> None:
    size = len(json.dumps(key, ensure_ascii=False, separators=(",", ":")).encode())
    assert size - 12 <= key_bytes(key) <= size + 100


def test_a_page_ends_when_its_keys_reach_the_limit_of_bytes() -> None:
    page = PageBuilder(Scan(1000, bytes_max=100_000))
    while not page.complete:
        page.add(WIDE, RECORD)
    assert len(page.records) == 3, "each has 48 KiB"
    assert not PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 3, results([RECORD] * 3))
    assert PageBuilder(Scan(1000, bytes_max=100_000)).add_all([WIDE] * 2, results([RECORD] * 2))


def results(records: Sequence[Record | None]) -> Results:
    found = Results.of(records)
    assert found is not None
    return found
