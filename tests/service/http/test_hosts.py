"""Which host names the service accepts."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.running import running
from tableside.app import create_app
from tableside.settings import SettingsError, validate

pytestmark = pytest.mark.server

MEMORY: dict[str, Any] = {"stores": {"s": {"kind": "memory"}}, "tables": {"t": {"store": "s"}}}
TOKEN = {"tokens": [{"name": "a", "sha256": "ab" * 32}]}

OURS = [
    "127.0.0.1",
    "127.0.0.1:8080",
    "10.1.2.3:80",
    "[::1]",
    "[::1]:8080",
    "localhost",
    "LOCALHOST:8080",
    "a.localhost",
]
OTHERS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "a:b:c",
    "[::1]x",
    "",
]


@asynccontextmanager
async def client_of(*, local: bool = False, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(validate(MEMORY | more), local=local)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://tableside") as client,
    ):
        yield client


async def statuses(client: httpx.AsyncClient, names: list[str], path: str = "/v1/tables") -> set[int]:
    return {(await client.get(path, headers={"host": name})).status_code for name in names}


async def test_a_local_service_accepts_only_addresses_and_localhost() -> None:
    async with client_of(local=True) as client:
        assert await statuses(client, [*OURS, "tableside", "my-machine:8080"]) == {200}
        assert await statuses(client, OTHERS) == {403}
        for path in ("/metrics", "/readyz", "/console", "/openapi.json", "/docs", "/v1/tables/t/records/a"):
            assert await statuses(client, ["evil.example"], path) == {403}


async def test_a_rejection_names_the_setting_and_repeats_no_input() -> None:
    async with client_of(local=True) as client:
        answer = await client.get("/v1/tables", headers={"host": "evil.example"})
        assert answer.json()["code"] == "forbidden"
        assert "`hosts`" in answer.json()["detail"]
        assert "evil" not in answer.text
        put = await client.put("/v1/tables/t/records/a", json={}, headers={"host": "evil.example"})
        assert put.status_code == 403
        assert (await client.get("/v1/tables/t/records/a", headers={"host": "localhost"})).status_code == 404


async def test_every_host_header_must_be_allowed() -> None:
    async with client_of(local=True) as client:
        for names in (["localhost", "evil.example"], ["evil.example", "localhost"]):
            answer = await client.get("/v1/tables", headers=[("host", name) for name in names])
            assert answer.status_code == 403


async def test_a_public_service_accepts_any_host_unless_hosts_are_configured() -> None:
    async with client_of() as client:
        assert await statuses(client, OURS + OTHERS) == {200}
    async with client_of(hosts=["tables.example", "*.svc.cluster.local"]) as client:
        names = ["tables.example", "Tables.Example:443", "tables.example.", "a.b.svc.cluster.local:8080", *OURS]
        assert await statuses(client, names) == {200}
        others = ["svc.cluster.local", "tableside", "xtables.example", "tables_example", "a.tables.example", *OTHERS]
        assert await statuses(client, others) == {403}


async def test_a_wrong_name_is_refused_before_a_token_is_looked_at() -> None:
    async with client_of(hosts=["tables.example"], auth=TOKEN) as client:
        assert await statuses(client, ["tables.example"]) == {401}
        assert await statuses(client, ["evil.example"]) == {403}


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a:80", "*", "*.*", "a/*", "-a", "a" * 300])
def test_an_invalid_host_name_is_a_fault(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate(MEMORY | {"hosts": [name]})
    assert [fault.path for fault in caught.value.faults] == ["hosts.0"]


def test_the_default_depends_on_the_listen_address(tmp_path: Path) -> None:
    def status(url: str) -> int:
        return httpx.get(f"{url}/v1/tables", headers={"host": "evil.example"}).status_code

    with running(tmp_path / "local") as service:
        assert status(service.url) == 403
    with running(tmp_path / "insecure", options=["--insecure"]) as service:
        assert status(service.url) == 200
    config = tmp_path / "config.yaml"
    config.write_text("stores: {s: {kind: memory}}\nhosts: [evil.example]\n")
    with running(tmp_path / "named", config) as service:
        assert status(service.url) == 200
        config.write_text("stores: {s: {kind: memory}}\nhosts: [good.example]\n")
        until = time.monotonic() + 20
        while status(service.url) != 403:
            assert time.monotonic() < until
            time.sleep(0.1)
