"""Comparisons of a value in a form with the stored one."""

import difflib
import json
import threading
from typing import Any

import pytest

from contract import put
from tableside.catalog import Table
from tableside.core import TableSpec
from tableside.http.console import records
from tableside.http.console.records import Address
from tableside.stores.memory import MemoryStore


class Tables:
    """A catalog of one table, which is its own entry."""

    spec = TableSpec("t")

    def __init__(self) -> None:
        self._table = Table(MemoryStore(self.spec))

    async def table(self, name: str) -> Table:
        return self._table


async def test_long_versions_are_compared_in_part_and_apart_from_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    class Noting(difflib.SequenceMatcher[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            threads.append(threading.get_ident())
            super().__init__(*arguments, **options)

    monkeypatch.setattr(difflib, "SequenceMatcher", Noting)
    tables: Any = Tables()
    stored = list(range(2 * records.COMPARED_LINES_MAX))
    await (await tables.table("t")).one(put("a", {"n": stored}))
    typed = json.dumps({"n": stored[1:]})
    view = await records.put(tables, tables, Address("a"), "", {"etag": "other", "value": typed})
    assert view.versions is not None
    assert [len(version.lines) for version in view.versions] == [records.COMPARED_LINES_MAX] * 2
    assert [line for line, differs in view.versions[1].lines if differs] == ["    0,"]
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
