"""The partitioned backend: a list of named backends. A backend's position in the list is its partition's index."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from pydantic import BaseModel, Field

from ...core import Backend, NoOptions, StoreUnavailable, TableError, TableSpec
from .store import LazyStore, PartitionedStore

PARTITIONS_MAX = 256

OPEN_TIMEOUT_S = 1.0
"""How long opening a table waits for its partitions. A slower partition is opened by the first operation on it."""


class PartitionedSettings(BaseModel, frozen=True, extra="forbid"):
    """The names of the stores, in the order of their partitions."""

    partitions: Annotated[tuple[str, ...], Field(min_length=1, max_length=PARTITIONS_MAX)]

    @property
    def place(self) -> str:
        """Return the number of stores."""
        return f"{len(self.partitions)} stores"


class PartitionedBackend:
    """Several backends as one. Does not close them."""

    Settings = PartitionedSettings
    TableOptions = NoOptions
    single_process = False

    def __init__(self, settings: PartitionedSettings) -> None:
        self._names = settings.partitions
        self._backends: Sequence[Backend] = ()

    @classmethod
    async def open(cls, settings: PartitionedSettings) -> "PartitionedBackend":
        """Return a backend without stores. `compose` adds them."""
        return cls(settings)

    def compose(self, backends: Mapping[str, Backend]) -> None:
        """Select the backends that the settings name from all open backends, by name."""
        self._backends = [backends[name] for name in self._names]
        self.single_process = any(backend.single_process for backend in self._backends)

    async def store(self, spec: TableSpec) -> PartitionedStore:
        """Return the store of one table, opened in every partition that is available now.

        Raise StoreUnavailable if no partition is available. Raise any other error of any partition.
        """
        partitions: list[LazyStore] = []
        partitions += [
            LazyStore(backend, _partition_spec(spec, index), partitions) for index, backend in enumerate(self._backends)
        ]
        failures = await _open_all(partitions)
        for index, failure in failures.items():
            if not isinstance(failure, StoreUnavailable) or len(failures) == len(partitions):
                raise type(failure)(f"partition {index}, in store {self._names[index]!r}: {failure.detail}")
        return PartitionedStore(spec, partitions)

    async def tables(self) -> list[str]:
        """Return the names of the tables with records in any available partition.

        Raise StoreUnavailable if no partition is available.
        """
        answers = await asyncio.gather(*(backend.tables() for backend in self._backends), return_exceptions=True)
        names: set[str] = set()
        for answer in answers:
            if isinstance(answer, list):
                names.update(answer)
            elif not isinstance(answer, StoreUnavailable) or not any(isinstance(one, list) for one in answers):
                raise answer
        return sorted(names)

    async def ping(self) -> None:
        """Raise StoreUnavailable, with the unreachable partitions and the reasons, unless all are reachable."""
        answers = await asyncio.gather(*(backend.ping() for backend in self._backends), return_exceptions=True)
        unreachable = []
        for index, answer in enumerate(answers):
            if isinstance(answer, TableError):
                unreachable.append(f"partition {index} in {self._names[index]!r} ({answer.detail})")
            elif answer is not None:
                raise answer
        if unreachable:
            raise StoreUnavailable(f"cannot be reached: {', '.join(unreachable)}")

    async def close(self) -> None:
        """Do nothing: the code that opened the partitions' backends closes them."""


def _partition_spec(spec: TableSpec, index: int) -> TableSpec:
    options = None if isinstance(spec.options, NoOptions) else spec.options
    return msgspec.structs.replace(spec, partition=index, options=options)


async def _open_all(partitions: Sequence[LazyStore]) -> dict[int, TableError]:
    """Open a table's partitions concurrently and return the failures by partition index."""
    tasks = [asyncio.ensure_future(partition.ensure_open()) for partition in partitions]
    try:
        await asyncio.wait(tasks, timeout=OPEN_TIMEOUT_S)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failures: dict[int, TableError] = {}
    for index, result in enumerate(results):
        if isinstance(result, asyncio.CancelledError):
            failures[index] = StoreUnavailable("its store does not respond")
        elif isinstance(result, TableError):
            failures[index] = result
        elif isinstance(result, BaseException):
            raise result
    return failures
