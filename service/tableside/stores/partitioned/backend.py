"""A store made of other stores that the configuration names: the order in its list is the partition's index."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from pydantic import BaseModel, Field

from ...core import Backend, NoOptions, StoreUnavailable, TableError, TableSpec
from .lazy_store import Opening
from .store import PartitionedStore

PARTITIONS_MAX = 256

OPENED_WITHIN_S = 1.0
"""How long a table is opened in its partitions: those that take longer are opened when they are asked."""


class PartitionedSettings(BaseModel, frozen=True, extra="forbid"):
    """The names of the stores, each a partition."""

    partitions: Annotated[tuple[str, ...], Field(min_length=1, max_length=PARTITIONS_MAX)]


class PartitionedBackend:
    """Several backends as one; who opened each of them closes it."""

    Settings = PartitionedSettings
    TableOptions = NoOptions
    single_process = False

    def __init__(self, settings: PartitionedSettings) -> None:
        self._names = settings.partitions
        self._backends: Sequence[Backend] = ()

    @classmethod
    async def open(cls, settings: PartitionedSettings) -> "PartitionedBackend":
        """Return a backend that has no stores yet."""
        return cls(settings)

    def compose(self, backends: Mapping[str, Backend]) -> None:
        """Take the stores that the settings name, from among all."""
        self._backends = [backends[name] for name in self._names]
        self.single_process = any(backend.single_process for backend in self._backends)

    async def store(self, spec: TableSpec) -> PartitionedStore:
        """Return the records of one table, opened in every partition whose store can be asked now.

        Raise StoreUnavailable if that is none, and what any of them raises beside that.
        """
        parts: list[Opening] = []
        parts += [Opening(backend, _part(spec, index), parts) for index, backend in enumerate(self._backends)]
        failures = await _opened(parts)
        for index, failure in failures.items():
            if not isinstance(failure, StoreUnavailable) or len(failures) == len(parts):
                raise type(failure)(f"partition {index}, in store {self._names[index]!r}: {failure.detail}")
        return PartitionedStore(spec, parts)

    async def tables(self) -> list[str]:
        """Return the names of the tables that hold anything in a partition; none is left out that can be asked."""
        answers = await asyncio.gather(*(backend.tables() for backend in self._backends), return_exceptions=True)
        names: set[str] = set()
        for answer in answers:
            if isinstance(answer, list):
                names.update(answer)
            elif not isinstance(answer, StoreUnavailable) or not any(isinstance(one, list) for one in answers):
                raise answer
        return sorted(names)

    async def ping(self) -> None:
        """Return if every partition can be reached; raise StoreUnavailable, which names those that cannot."""
        answers = await asyncio.gather(*(backend.ping() for backend in self._backends), return_exceptions=True)
        away = []
        for index, answer in enumerate(answers):
            if isinstance(answer, TableError):
                away.append(f"partition {index} in {self._names[index]!r}")
            elif answer is not None:
                raise answer
        if away:
            raise StoreUnavailable(f"cannot be reached: {', '.join(away)}")

    async def close(self) -> None:
        """Do nothing: the partitions' stores are closed by whoever opened them."""


def _part(spec: TableSpec, index: int) -> TableSpec:
    options = None if isinstance(spec.options, NoOptions) else spec.options
    return msgspec.structs.replace(spec, partition=index, options=options)


async def _opened(parts: Sequence[Opening]) -> dict[int, TableError]:
    """Open a table's partitions side by side, and return why some could not be."""
    works = [asyncio.ensure_future(part.opened()) for part in parts]
    try:
        await asyncio.wait(works, timeout=OPENED_WITHIN_S)
    finally:
        for work in works:
            work.cancel()
        results = await asyncio.gather(*works, return_exceptions=True)
    failures: dict[int, TableError] = {}
    for index, result in enumerate(results):
        if isinstance(result, asyncio.CancelledError):
            failures[index] = StoreUnavailable("its store does not answer")
        elif isinstance(result, TableError):
            failures[index] = result
        elif isinstance(result, BaseException):
            raise result
    return failures
