"""A web service that counts visits in a table: `uvicorn examples.counters:app` with `TABLESIDE_URL` set.

    POST /visits/{page}          count one visit
    GET  /visits/{page}          the number of visits
    POST /visits                 count many visits, as `{"page": number}`
    GET  /top?limit=10           the most visited pages of a scan

Concurrent reads share batches (`coalesce=True`). A visit counts once, also if its request is retried. A caller that may
send a visit twice sets the header `Idempotency-Key`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import nlargest
from typing import Annotated

from fastapi import FastAPI, Header, Request
from pydantic import BaseModel

from tableside_client import AsyncClient, AsyncTable


class Counter(BaseModel):
    """The value of a record of the table `counters`."""

    visits: int = 0


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one client open while the service runs."""
    async with AsyncClient(coalesce=True) as client:
        app.state.counters = client.table("counters", Counter)
        yield


app = FastAPI(title="Counters", lifespan=lifespan)


def counters(request: Request) -> AsyncTable[Counter]:
    """Return the table of counters."""
    table: AsyncTable[Counter] = request.app.state.counters
    return table


@app.post("/visits/{page}", status_code=204)
async def count(request: Request, page: str, idempotency_key: Annotated[str | None, Header()] = None) -> None:
    """Count one visit."""
    await counters(request).update(page, {"$inc": {"visits": 1}}, default=Counter(), token=idempotency_key)


@app.get("/visits/{page}")
async def visits(request: Request, page: str) -> Counter:
    """Return the number of visits of a page."""
    return await counters(request).get(page) or Counter()


@app.post("/visits")
async def count_many(request: Request, numbers: dict[str, int]) -> dict[str, str]:
    """Count visits of many pages in one batch. Returns the pages that could not be counted, with the reason."""
    operations = [
        {"op": "update", "key": page, "update": {"$inc": {"visits": number}}, "default": {"visits": 0}}
        for page, number in numbers.items()
    ]
    outcomes = await counters(request).batch(operations)
    return {page: outcome.error.detail for page, outcome in zip(numbers, outcomes, strict=True) if outcome.error}


@app.get("/top")
async def top(request: Request, limit: int = 10) -> dict[str, int]:
    """Return the most visited pages."""
    found = [(record.value.visits, record.key) async for record in counters(request).scan()]
    return {page: number for number, page in nlargest(limit, found)}
