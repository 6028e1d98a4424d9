"""Either client, for cases that are written once: the methods of the blocking one run in threads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tableside_client import AsyncClient, Client, Table


@asynccontextmanager
async def open_client(kind: str, url: str, options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open a client of this kind: `blocking` or `asyncio`."""
    if kind == "asyncio":
        async with AsyncClient(url, **options) as client:
            yield client
    else:
        with Client(url, **options) as blocking:
            yield InThreads(blocking)


class InThreads:
    """A blocking client or table with the interface of its asyncio twin."""

    def __init__(self, wrapped: Client | Table[Any]) -> None:
        self._wrapped = wrapped

    def table(self, *arguments: Any, **options: Any) -> "InThreads":
        assert isinstance(self._wrapped, Client)
        return InThreads(self._wrapped.table(*arguments, **options))

    async def scan(self, **options: Any) -> AsyncIterator[Any]:
        assert isinstance(self._wrapped, Table)
        records: Iterator[Any] = self._wrapped.scan(**options)
        end = object()
        while (record := await asyncio.to_thread(next, records, end)) is not end:
            yield record

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._wrapped, name)

        async def run(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **options)

        return run


def batches(url: str) -> float:
    """Return the number of batches that the service has answered."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("tableside_batch_operations_count"))
