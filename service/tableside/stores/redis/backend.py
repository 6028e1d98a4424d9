"""The Redis backend: opens the tables of a single server, of the primary of Sentinels, or of a Redis Cluster.

Each record is a string. Gets are one MGET. Puts and deletes without a condition are one call of a script. A write that
depends on the current record reads it, decides in Python, and replaces the record by a script if it has not changed.
Records expire by Redis's own expiry and the server's clock.
"""

import time

from ...core import (
    Capabilities,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    TableSpec,
    Unsupported,
    WriteHealth,
    gather_bounded,
)
from .connection import Reply
from .errors import expected, from_unexpected_reply
from .keys import TABLES_KEY, KeyNames, PartitionIndex, slot_of
from .scripts import Command
from .servers import NODES_CONCURRENCY_MAX, Servers
from .settings import RedisSettings, RedisTableOptions, create_servers
from .store import RedisStore

VERSION_MIN = (7, 0)
"""The first version with PEXPIRETIME, which returns a key's expiry."""

OPEN_TIMEOUT_S = 5.0
"""How long opening or listing tables waits for the server."""

PING_TIMEOUT_S = 1.8


class RedisBackend:
    """The connections to one server or cluster."""

    Settings = RedisSettings
    TableOptions = RedisTableOptions
    single_process = False

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._health = WriteHealth()
        self._opened = False
        self.connections = servers.connections

    @classmethod
    async def open(cls, settings: RedisSettings) -> "RedisBackend":
        """Return a backend that connects on first use."""
        return cls(create_servers(settings))

    @classmethod
    def table_faults(cls, settings: RedisSettings, spec: TableSpec) -> list[TableError]:
        """Return the reasons why a table can never be opened."""
        try:
            _names_and_index(spec, cluster=settings.cluster, never_evicts=True)
        except TableError as error:
            return [error]
        return []

    async def store(self, spec: TableSpec) -> "RedisStore":
        """Return the store of one table. Redis needs no table to be created.

        Raise InvalidOperation if a server does not match the `cluster` setting, Unsupported if its version is too old.
        """
        infos: list[dict[str, str]] = []
        for reply in await self._ask_nodes("INFO", OPEN_TIMEOUT_S):
            lines = expected(reply, bytes).decode(errors="replace").splitlines()
            infos.append(dict(line.split(":", 1) for line in lines if ":" in line))
        self._opened = True
        for info in infos:
            version = info.get("redis_version", "")
            if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < VERSION_MIN:
                raise Unsupported(f"Redis {version} is too old: 7.0 or newer is required")
            if not self._servers.is_cluster and info.get("cluster_enabled") == "1":  # Valkey has no `redis_mode`
                raise InvalidOperation("this Redis is a cluster: its `stores` entry needs `cluster: true`")
        policies = {info.get("maxmemory_policy", "") for info in infos}
        never_evicts = policies == {"noeviction"}
        names, index = _names_and_index(spec, cluster=self._servers.is_cluster, never_evicts=never_evicts)
        if spec.create and spec.generation == 1:
            expected(await self._run(("SADD", TABLES_KEY, spec.name_in_store), writes=True), int)
        capabilities = Capabilities(
            tokens=never_evicts,
            sorted_scan=False,
            partition_scan=index is not None and index.exclusive,
            generations=not any(policy.startswith("allkeys-") for policy in policies),  # it may lose the current one
        )
        return RedisStore(self._servers, spec, names, index, self._health, capabilities)

    async def tables(self) -> list[str]:
        """Return the names of the tables that were opened with `create`."""
        return sorted(member.decode() for member in expected(await self._run(("SMEMBERS", TABLES_KEY)), list))

    async def ping(self) -> None:
        """Raise a TableError unless the server responds and has not just rejected writes.

        In a cluster, all nodes must respond until a table is open, because opening needs all of them; then any node.
        """
        replies = await self._ask_nodes("PING", PING_TIMEOUT_S)
        failed = [reply for reply in replies if reply != b"PONG"]
        if failed and not (self._opened and len(failed) < len(replies)):
            raise from_unexpected_reply(failed[0])
        self._health.check()

    async def close(self) -> None:
        """Close the connections."""
        self._servers.close()

    async def _ask_nodes(self, command: str, timeout_s: float) -> list[Reply]:
        """Return the reply of each node. Raise StoreUnavailable if there is none."""
        until = time.monotonic() + timeout_s
        nodes = await self._servers.nodes(until)
        if not nodes:
            raise StoreUnavailable("no node of the Redis Cluster serves a slot")
        calls = [node.run([Command((command,))], until) for node, _ in nodes]
        return [reply for [reply] in await gather_bounded(calls, NODES_CONCURRENCY_MAX)]

    async def _run(self, words: tuple[str, ...], *, writes: bool = False) -> Reply:
        until = time.monotonic() + OPEN_TIMEOUT_S
        [reply] = await self._servers.run([Command(words, slot_of(TABLES_KEY))], until, writes=writes)
        return reply


def _names_and_index(spec: TableSpec, *, cluster: bool, never_evicts: bool) -> tuple[KeyNames, PartitionIndex | None]:
    """Return the names of a table's records and the index of its partitions. Raise InvalidOperation for bad options."""
    options, key = spec.options_of(RedisTableOptions), spec.key
    prefix = options.prefix or f"{spec.first_name}:"
    if spec.generation > 1:
        prefix = f"{spec.generation}@{prefix}"
    names = KeyNames(prefix, key, hash_tag=options.hash_tag)
    if (options.hash_tag or options.exclusive) and not key.composite:
        raise InvalidOperation("`hash_tag` and `exclusive` need a composite key")
    if options.hash_tag and not names.keep_partitions_together:
        raise InvalidOperation("`hash_tag` has no effect after a `prefix` with `{}`")
    if key.composite and (names.keep_partitions_together or not cluster):
        return names, PartitionIndex(names, key, exclusive=options.exclusive and never_evicts)
    if options.exclusive:
        raise InvalidOperation("on a Redis Cluster `exclusive` needs `hash_tag: true`")
    return names, None
