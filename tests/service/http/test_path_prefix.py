"""The prefix of paths behind a reverse proxy: `root_path` and `X-Forwarded-Prefix`."""

import asyncio
from pathlib import Path

import httpx
import pytest

from service.http.api_client import MEMORY, application
from support.running import running
from support.waiting import until
from tableside.settings import SettingsError, validate

TOKEN = {"tokens": [{"name": "etl", "sha256": "0" * 64, "read": ["*"], "write": ["*"]}]}


async def prefix_of(client: httpx.AsyncClient, *headers: tuple[str, str]) -> str:
    """Return the prefix of a redirect."""
    return (await client.get("/", headers=[*headers])).headers["Location"].removesuffix("/console")


async def test_a_path_has_the_prefix_or_not() -> None:
    async with application({"root_path": "/a/b-c", "auto_create": True}) as (_, client):
        assert (await client.put("/a/b-c/v1/tables/t/records/x%2Fy", json={"n": 1})).status_code == 204
        assert (await client.get("/v1/tables/t/records/x%2Fy")).json() == {"n": 1}
        for path in ("/a/b-c/livez", "/livez", "/a/b-c/metrics", "/a/b-c/docs", "/a/b-c/openapi.json"):
            assert (await client.get(path)).status_code == 200
        for path in ("/a/b-c", "/a/b-c/"):
            assert (await client.get(path)).headers["Location"] == "/a/b-c/console"
        for path in ("/a/b-cd/livez", "/a/livez", "/a%2Fb-c/livez", "/a/b-c/a/b-c/livez", "/a/b-c//livez"):
            assert (await client.get(path)).json()["code"] == "not_found"


async def test_a_prefix_does_not_bypass_authentication() -> None:
    async with application({"root_path": "/a", "auth": TOKEN}) as (_, client):
        for path in ("/v1/tables", "/a/v1/tables", "/a/v1/tables/t/records/x", "/a/console"):
            assert (await client.get(path)).status_code == 401
        assert (await client.get("/a/livez")).status_code == 200


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::1"])
async def test_a_trusted_proxy_chooses_the_prefix(address: str) -> None:
    settings = {"root_path": "/a", "trusted_proxies": ["10.0.0.0/8", "2001:db8::/32"]}
    async with application(settings, address=address) as (_, client):
        assert await prefix_of(client) == "/a"
        assert await prefix_of(client, ("X-Forwarded-Prefix", "/b/c")) == "/b/c"
        assert await prefix_of(client, ("X-Forwarded-Prefix", "/b/")) == "/b"
        assert (await client.get("/b/livez", headers={"X-Forwarded-Prefix": "/b"})).status_code == 200


@pytest.mark.parametrize(
    "given", ["//evil.example", "/\\evil.example", "evil.example", "/b, /c", "/b?x", "/v1", "/", ""]
)
async def test_an_invalid_prefix_of_a_proxy_is_ignored(given: str) -> None:
    async with application({"root_path": "/a", "trusted_proxies": ["127.0.0.1"]}) as (_, client):
        assert await prefix_of(client, ("X-Forwarded-Prefix", given)) == "/a"
        assert await prefix_of(client, ("X-Forwarded-Prefix", "/b"), ("X-Forwarded-Prefix", "/c")) == "/a"


@pytest.mark.parametrize("trusted", [[], ["10.1.2.4", "192.168.0.0/16", "::/0"]])
async def test_others_do_not_choose_the_prefix(trusted: list[str]) -> None:
    async with application({"trusted_proxies": trusted}) as (_, client):
        assert await prefix_of(client, ("X-Forwarded-Prefix", "/b")) == ""


@pytest.mark.parametrize("path", ["a", "/", "/a/", "//a", "/a//b", "/a b", "/%61", "/..", "/v1", "/v1/tables", "/docs"])
def test_a_prefix_is_a_plain_path_that_the_service_does_not_have(path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate({**MEMORY, "root_path": path})
    [fault] = caught.value.faults
    assert fault.path == "root_path"
    assert "such as /tableside" in fault.message


@pytest.mark.parametrize("proxy", ["proxy.example", "10.0.0.1/8", "10.0.0.0/33", ""])
def test_a_trusted_proxy_is_an_address_or_a_network(proxy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        validate({**MEMORY, "trusted_proxies": [proxy]})
    assert [fault.path for fault in caught.value.faults] == ["trusted_proxies.0"]


@pytest.mark.server
async def test_a_reload_changes_the_prefix_and_the_proxies(tmp_path: Path) -> None:
    config = tmp_path / "tableside.yaml"
    config.write_text("stores: {s: {kind: memory}}\nroot_path: /old\n")
    with running(tmp_path, config) as service:
        async with httpx.AsyncClient(base_url=service.url) as client:
            assert await prefix_of(client, ("X-Forwarded-Prefix", "/b")) == "/old"
            config.write_text("stores: {s: {kind: memory}}\nroot_path: /new\ntrusted_proxies: [127.0.0.0/8]\n")
            await asyncio.to_thread(until, lambda: httpx.get(service.url).headers["Location"] == "/new/console")
            assert await prefix_of(client, ("X-Forwarded-Prefix", "/b")) == "/b"
