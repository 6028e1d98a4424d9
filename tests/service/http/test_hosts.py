"""Which host names the service accepts."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.http.api_client import MEMORY, application
from support.running import running
from support.waiting import until
from tableside.settings import SettingsError, validate

pytestmark = pytest.mark.server

TABLE: dict[str, Any] = {"tables": {"t": {"store": "s"}}}
TOKEN = {"tokens": [{"name": "a", "sha256": "ab" * 32}]}

OURS = ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "localhost", "LOCALHOST:8080", "a.localhost"]
OTHERS = ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "a:b:c", "[::1]x", ""]


async def statuses(client: httpx.AsyncClient, names: list[str], path: str = "/v1/tables") -> set[int]:
    return {(await client.get(path, headers={"host": name})).status_code for name in names}


async def test_a_local_service_accepts_only_addresses_and_localhost() -> None:
    async with application(TABLE, local=True) as (_, client):
        assert await statuses(client, [*OURS, "tableside", "my-machine:8080"]) == {200}
        assert await statuses(client, OTHERS) == {403}
        for path in ("/metrics", "/readyz", "/console", "/openapi.json", "/docs", "/v1/tables/t/records/a"):
            assert await statuses(client, ["evil.example"], path) == {403}


async def test_a_rejection_names_the_setting_and_repeats_no_input_nor_changes_a_record() -> None:
    async with application(TABLE, local=True) as (_, client):
        answer = await client.get("/v1/tables", headers={"host": "evil.example"})
        assert answer.json()["code"] == "forbidden"
        assert "`hosts`" in answer.json()["detail"]
        assert "evil" not in answer.text
        put = await client.put("/v1/tables/t/records/a", json={}, headers={"host": "evil.example"})
        assert put.status_code == 403
        assert (await client.get("/v1/tables/t/records/a", headers={"host": "localhost"})).status_code == 404


async def test_every_host_header_must_be_allowed() -> None:
    async with application(TABLE, local=True) as (_, client):
        for names in (["localhost", "evil.example"], ["evil.example", "localhost"]):
            answer = await client.get("/v1/tables", headers=[("host", name) for name in names])
            assert answer.status_code == 403


async def test_a_public_service_accepts_any_host_unless_hosts_are_configured() -> None:
    async with application(TABLE) as (_, client):
        assert await statuses(client, OURS + OTHERS) == {200}
    async with application({**TABLE, "hosts": ["tables.example", "*.svc.cluster.local"]}) as (_, client):
        names = ["tables.example", "Tables.Example:443", "tables.example.", "a.b.svc.cluster.local:8080", *OURS]
        assert await statuses(client, names) == {200}
        others = ["svc.cluster.local", "tableside", "xtables.example", "tables_example", "a.tables.example", *OTHERS]
        assert await statuses(client, others) == {403}


async def test_a_wrong_name_is_refused_before_a_token_is_looked_at() -> None:
    async with application({**TABLE, "hosts": ["tables.example"], "auth": TOKEN}) as (_, client):
        assert await statuses(client, ["tables.example"]) == {401}
        assert await statuses(client, ["evil.example"]) == {403}


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a:80", "*", "*.*", "a/*", "-a", "a" * 300])
def test_an_invalid_host_name_is_a_fault(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate({**MEMORY, "hosts": [name]})
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
        until(lambda: status(service.url) == 403)
