"""The example web service with counters uses `AsyncClient` with a real service."""

import asyncio
import re

import httpx
import pytest
from examples import counters
from uvicorn.importer import import_from_string

from support.running import Service

pytestmark = pytest.mark.server


def test_the_documented_command_names_the_application() -> None:
    command = re.search(r"`uvicorn (\S+)`", counters.__doc__ or "")
    assert command is not None
    assert import_from_string(command[1]) is counters.app


async def test_concurrent_visits_count_once_each(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLESIDE_URL", service.url)
    transport = httpx.ASGITransport(counters.app)
    async with counters.lifespan(counters.app), httpx.AsyncClient(transport=transport, base_url="http://app") as web:
        assert (await web.post("/visits", json={"home": 5, "about": 1})).json() == {}
        for response in await asyncio.gather(*(web.post("/visits/home") for _ in range(50))):
            assert response.status_code == 204
        for _ in range(2):
            await web.post("/visits/about", headers={"Idempotency-Key": "visit-7"})
        pages = ["home", "about", "absent"] * 20
        found = await asyncio.gather(*(web.get(f"/visits/{page}") for page in pages))
        assert [response.json()["visits"] for response in found] == [55, 2, 0] * 20
        assert (await web.get("/top", params={"limit": 1})).json() == {"home": 55}
        assert list((await web.post("/visits", json={"": 1, "home": 1})).json()) == [""]
