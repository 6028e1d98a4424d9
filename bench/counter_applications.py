"""The applications of `bench.counters`. `TABLESIDE_URL` and `REDIS_URL` name their servers."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio
from examples import counters
from fastapi import FastAPI

from tableside_client import AsyncClient


def with_coalescing() -> FastAPI:
    """Return the example as it is."""
    return counters.app


def without_coalescing() -> FastAPI:
    """Return the example with a client that sends a request for each read."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncClient() as client:
            app.state.counters = client.table("counters", counters.Counter)
            yield

    counters.app.router.lifespan_context = lifespan
    return counters.app


def with_redis() -> FastAPI:
    """Return an application with the endpoints of the example that keeps each number in a Redis string."""
    client = redis.asyncio.Redis.from_url(os.environ["REDIS_URL"])
    app = FastAPI()

    @app.post("/visits/{page}", status_code=204)
    async def count(page: str) -> None:
        await client.incr(f"visits:{page}")

    @app.get("/visits/{page}")
    async def visits(page: str) -> counters.Counter:
        return counters.Counter(visits=int(await client.get(f"visits:{page}") or 0))

    @app.post("/visits")
    async def count_many(numbers: dict[str, int]) -> dict[str, str]:
        pipeline = client.pipeline(transaction=False)
        for page, number in numbers.items():
            pipeline.incrby(f"visits:{page}", number)
        await pipeline.execute()
        return {}

    return app
