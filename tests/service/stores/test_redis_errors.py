"""What Redis rejects: users, databases, commands, keys, TLS, writes. The error says whether retries can help."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from contract import one, put, scanned, update, value, written
from servers.process import HOST, free_port
from servers.redis import redis, redis_cluster
from support.certificates import Authority
from support.redis_tables import configured, connected, table, user
from tableside.core.errors import InvalidOperation, StoreMisconfigured, StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Operation, Token, Written
from tableside.core.store import TableSpec

pytestmark = pytest.mark.server


async def rejection(url: str, **settings: Any) -> TableError:
    """Return the error of a ping, which is also that of opening a table."""
    async with connected(url, **settings) as backend:
        with pytest.raises(StoreUnavailable) as opening:
            await backend.store(TableSpec("t"))
        with pytest.raises(StoreUnavailable) as ping:
            await backend.ping()
    assert type(opening.value) is type(ping.value)
    return ping.value


def check(error: object, *words: str) -> None:
    assert isinstance(error, StoreMisconfigured), error
    assert (error.retriable, error.retry_after_s) == (False, None)
    for word in words:
        assert word in error.detail
    assert "secret" not in error.detail


@pytest.mark.parametrize("database", [99, 10**12])
async def test_a_database_that_the_server_lacks(own_redis_url: str, database: int) -> None:
    check(await rejection(own_redis_url.replace("/0", f"/{database}")), f"has no database {database}")


async def test_users_and_passwords(own_redis_url: str) -> None:
    check(await rejection(own_redis_url, password="secret"), "has no password")
    check(await rejection(own_redis_url, username="nobody", password="secret"), "user or the password is wrong")
    async with Redis.from_url(own_redis_url) as admin:
        await admin.config_set("requirepass", "right")
        check(await rejection(own_redis_url), "requires authentication")
        check(await rejection(own_redis_url, password="secret"), "user or the password is wrong")
        await admin.config_set("requirepass", "")


@pytest.mark.parametrize("command", ["ping", "info", "select"])
async def test_a_command_that_opening_needs_is_named(own_redis_url: str, command: str) -> None:
    async with (
        user(own_redis_url, f"+@all -{command}") as settings,
        connected(own_redis_url.replace("/0", "/1"), **settings) as backend,
    ):
        with pytest.raises(StoreUnavailable) as raised:
            await (backend.ping() if command == "ping" else backend.store(TableSpec("t")))
    check(raised.value, f"the command {command.upper()}")


TOKEN = Token("w", 1)


@pytest.mark.parametrize(
    ("command", "operation"),
    [
        ("mget", Get("a")),
        ("evalsha", put("a", {"n": 1})),
        ("exists", put("a", {"n": 1}, token=TOKEN)),
        ("getrange", update("remembered", {"n": 1}, {})),
        ("unlink", Delete("a")),
    ],
)
async def test_a_command_that_an_operation_needs_is_named(
    own_redis_url: str, command: str, operation: Operation
) -> None:
    async with user(own_redis_url, f"+@all -{command}") as settings, table(own_redis_url, **settings) as store:
        await one(store, put("remembered", {}, token=TOKEN))
        outcomes = await store.apply([operation] if command != "mget" else [Get(f"{n}") for n in range(30)])
    check(outcomes[0], f"the command {command.upper()}")


async def test_a_key_that_the_user_may_not_use(own_redis_url: str) -> None:
    async with user(own_redis_url, "+@all", ["other:*"]) as settings, table(own_redis_url, **settings) as store:
        for operation in (Get("a"), put("a", {}), update("a", {}, {}), Delete("a")):
            outcome = await one(store, operation)
            check(outcome, "~PREFIX*", "~_ts*")
            assert isinstance(outcome, TableError)
            assert outcome.applied == "no"


async def test_tls_that_fails_for_good(tmp_path: Path) -> None:
    port, authority = free_port(), Authority(tmp_path / "tls")
    signed, other = authority.sign("redis"), Authority(tmp_path / "other")
    files = (
        f"--tls-cert-file {signed.certificate} --tls-key-file {signed.key} --tls-ca-cert-file {authority.certificate}"
    )
    more = "--tls-auth-clients yes --tls-protocols TLSv1.2"
    with redis(tmp_path, arguments=["--tls-port", str(port), *files.split(), *more.split()]):
        address = f"rediss://{HOST}:{port}/0"
        check(await rejection(address), "certificate of Redis is not accepted")
        check(await rejection(f"{address}?ssl_ca_certs={other.certificate}"), "certificate of Redis is not accepted")
        check(await rejection(f"{address}?ssl_ca_certs={authority.certificate}"), "ssl_certfile")


async def test_a_server_without_tls_is_reported_as_one_that_does_not_accept_tls(own_redis_url: str) -> None:
    error = await rejection(own_redis_url.replace("redis://", "rediss://"), connect_timeout_s=0.5)
    assert error.detail == "Redis with TLS accepted no connection within 0.5 s"


async def test_a_host_name_that_does_not_exist_may_exist_later() -> None:
    error = await rejection("redis://no-such-host.invalid:6379/0")
    assert error.retriable
    assert "host name" in error.detail


async def announce_unreachable(urls: list[str]) -> str:
    """Let the second node announce an address where nothing listens, and return it when all nodes know it."""
    port = free_port()
    async with Redis.from_url(urls[1]) as tool:
        await tool.config_set("cluster-announce-port", port)
    for url in urls:
        node: Any = Redis.from_url(url)
        async with node:
            while str(port) not in str(await node.execute_command("CLUSTER", "SLOTS")):
                await asyncio.sleep(0.05)
    return f"{HOST}:{port}"


async def test_the_address_that_a_cluster_announces_is_named_and_the_store_is_not_ready(tmp_path: Path) -> None:
    with redis_cluster(tmp_path) as urls:
        address = await announce_unreachable(urls)
        for url in urls:
            error = await rejection(url, cluster=True)
            assert f"{address} (as the Redis Cluster announces it)" in error.detail
            assert error.retriable


async def test_a_single_server_is_rejected_as_a_cluster(redis_url: str, redis_cluster_urls: list[str]) -> None:
    async with connected(redis_url, cluster=True) as backend:
        with pytest.raises(InvalidOperation, match="cluster"):
            await backend.store(TableSpec("t"))
    async with connected(redis_cluster_urls[0]) as backend:
        with pytest.raises(InvalidOperation, match="cluster"):
            await backend.store(TableSpec("t"))


async def test_a_server_without_memory_throttles_writes_and_still_reads_and_deletes(own_redis_url: str) -> None:
    async with table(own_redis_url) as store:
        await store.apply([put("a", {"n": 1}), put("d", token=Token("w", 1))])
        async with configured(own_redis_url, maxmemory="1"):
            for outcome in await store.apply([put("a", {}), update("b", {}, {}), put("c", token=Token("w", 1))]):
                assert isinstance(outcome, Throttled)
                assert (outcome.applied, outcome.retriable) == ("no", True)
            assert await value(store, "a") == {"n": 1}
            assert {type(outcome) for outcome in await store.apply([Delete("a"), Delete("d")])} == {Written}
        assert await scanned(store) == []


async def test_writes_to_a_read_only_replica_fail(own_redis_url: str) -> None:
    async with table(own_redis_url) as store, Redis.from_url(own_redis_url) as client:
        await written(store, put("a", {"n": 1}))
        await client.config_set("repl-diskless-load", "disabled")
        await client.replicaof("127.0.0.1", free_port())
        try:
            assert await value(store, "a") == {"n": 1}
            for operation in (put("a", {"n": 2}), update("a", {"n": 2}), Delete("a"), Delete("a", token=Token("w", 1))):
                outcome = await one(store, operation)
                assert isinstance(outcome, StoreUnavailable), outcome
                assert outcome.applied == "no"
        finally:
            await client.replicaof("NO", "ONE")
        assert await value(store, "a") == {"n": 1}
