"""The Redis backend: settings, opening a single server, its Sentinels or a Redis Cluster, and its tables.

Each record is a string. Gets are one MGET. Puts and deletes without a condition are one call of a script. A write that
depends on the current record reads it, decides in Python, and replaces the record by a script if it has not changed.
Records expire by Redis's own expiry and the server's clock.
"""

import time
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator, model_validator
from redis.asyncio.connection import SSLConnection

from ...core import (
    Clock,
    Connections,
    InvalidOperation,
    KeySchema,
    StoreUnavailable,
    TableError,
    TableSpec,
    Unsupported,
    WriteHealth,
    gather_bounded,
    now_ms,
    url_place,
)
from .cluster import NODES_CONCURRENCY_MAX, Cluster
from .connection import Node
from .driver import Reply, connection_type
from .errors import from_error_reply, from_unexpected_reply
from .keys import TABLES_KEY, KeyNames, checked_prefix, slot_of
from .partition_index import PartitionIndex
from .scripts import Command
from .sentinel import Sentinels, SentinelServer
from .store import RedisStore
from .topology import Servers, SingleServer
from .url import Address, RedisUrl, check_tls, parse_redis_url

VERSION_MIN = (7, 0)
"""The first version with PEXPIRETIME, which returns a key's expiry."""

OPEN_TIMEOUT_S = 5.0
"""How long opening or listing tables waits for the server."""

PING_TIMEOUT_S = 1.8

NO_EVICTION = "noeviction"


class RedisSettings(BaseModel, frozen=True, extra="forbid"):
    """How to connect to Redis. `connections_max` applies to each node. The URL may also contain user and password.

    `sentinel_username` and `sentinel_password` are for the Sentinels, which do not have the users of Redis.
    """

    url: SecretStr
    cluster: bool = False
    username: str | None = None
    password: SecretStr | None = None
    sentinel_username: str | None = None
    sentinel_password: SecretStr | None = None
    connections_max: int = Field(default=32, ge=1, le=10_000)
    connect_timeout_s: float = Field(default=2.0, gt=0, le=60)

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        check_tls(parse_redis_url(url.get_secret_value()).options)
        return url

    @model_validator(mode="after")
    def _check_topology(self) -> "RedisSettings":
        url = self._parsed
        if self.cluster and (url.options.get("db") or "host" not in url.options):
            raise ValueError("a Redis Cluster supports only TCP addresses and database 0, without Sentinels")
        if (self.sentinel_username or self.sentinel_password) and not url.sentinels:
            raise ValueError("sentinel_username and sentinel_password need a `url` with redis+sentinel://")
        return self

    @property
    def place(self) -> str:
        """Return the server's address."""
        return url_place(self.url.get_secret_value())

    @property
    def _parsed(self) -> RedisUrl:
        return parse_redis_url(self.url.get_secret_value())

    @property
    def service(self) -> str:
        """Return the service of the Sentinels."""
        return self._parsed.service

    def connection(self) -> dict[str, Any]:
        """Return the driver's options for a connection, including secrets. With Sentinels they have no address."""
        return _with_user(self._parsed.options, self.username, self.password)

    def sentinel_connections(self) -> list[dict[str, Any]]:
        """Return the driver's options for a connection to each Sentinel."""
        url = self._parsed
        options = {name: url.options[name] for name in url.options.keys() - {"username", "password", "db"}}
        options = _with_user(options, self.sentinel_username, self.sentinel_password)
        return [options | {"host": host, "port": port} for host, port in url.sentinels]

    async def primary(self) -> Address:
        """Ask the Sentinels for the address of the primary, for a single connection."""
        sentinels = create_sentinels(self)
        try:
            return await sentinels.primary(time.monotonic() + self.connect_timeout_s)
        finally:
            sentinels.close()


def _with_user(options: dict[str, Any], username: str | None, password: SecretStr | None) -> dict[str, Any]:
    user = {} if username is None else {"username": username}
    return options | user | ({} if password is None else {"password": password.get_secret_value()})


class RedisTableOptions(BaseModel, frozen=True, extra="forbid"):
    """The names of a table's records, and whether other tools add records.

    `prefix` is the start of the names of the Redis keys. By default it is the table's name in the store and `:`.
    `hash_tag` puts the first part of a composite key in braces, so that a Redis Cluster keeps a partition in one slot.
    `exclusive` states that only the service adds records, so that a scan of a partition needs only its index.
    """

    prefix: str | None = None
    hash_tag: bool = False
    exclusive: bool = False

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, prefix: str | None, info: ValidationInfo) -> str | None:
        return None if prefix is None else checked_prefix(prefix)


class RedisBackend:
    """The connections to one server or cluster."""

    Settings = RedisSettings
    TableOptions = RedisTableOptions
    single_process = False

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._health = WriteHealth()
        self._opened = False

    @classmethod
    async def open(cls, settings: RedisSettings, clock: Clock = now_ms) -> "RedisBackend":
        """Return a backend that connects on first use. Ignores `clock`: the server's clock decides expiry."""
        return cls(create_servers(settings))

    @classmethod
    def table_faults(cls, settings: RedisSettings, spec: TableSpec) -> list[TableError]:
        """Return the reasons why a table can never be opened."""
        try:
            _names_and_index(spec, cluster=settings.cluster)
        except TableError as error:
            return [error]
        return []

    async def store(self, spec: TableSpec) -> "RedisStore":
        """Return the store of one table. Redis needs no table to be created.

        Raise InvalidOperation if a server does not match the `cluster` setting, Unsupported if its version is too old.
        """
        infos = await self._server_infos()
        self._opened = True
        for info in infos:
            _check_server(info, cluster=self._servers.is_cluster)
        names, index = _names_and_index(spec, cluster=self._servers.is_cluster)
        if spec.create:
            await self._run(Command(("SADD", TABLES_KEY, spec.name_in_store), (), slot_of(TABLES_KEY)), writes=True)
        never_evicts = all(info.get("maxmemory_policy") == NO_EVICTION for info in infos)
        return RedisStore(self._servers, spec, names, index, self._health, never_evicts=never_evicts)

    async def tables(self) -> list[str]:
        """Return the names of the tables that were opened with `create`."""
        members = await self._run(Command(("SMEMBERS", TABLES_KEY), (), slot_of(TABLES_KEY)))
        return sorted(member.decode() for member in members)

    async def ping(self) -> None:
        """Raise a TableError unless the server responds and has not just rejected writes.

        In a cluster, all nodes must respond until a table is open, because opening needs all of them; then any node.
        """
        replies = await self._ask_nodes(Command(("PING",)), time.monotonic() + PING_TIMEOUT_S)
        failed = [reply for reply in replies if reply != b"PONG"]
        if failed and not (self._opened and len(failed) < len(replies)):
            raise from_unexpected_reply(failed[0])
        self._health.check()

    def connections(self) -> Connections:
        """Return the current number of connections, to all nodes of a cluster."""
        return self._servers.connections()

    async def close(self) -> None:
        """Close the connections."""
        self._servers.close()

    async def _server_infos(self) -> list[dict[str, str]]:
        """Return the fields of INFO for each node."""
        replies = await self._ask_nodes(Command(("INFO",)), _open_deadline())
        return [_parse_info(_value_or_raise(reply)) for reply in replies]

    async def _ask_nodes(self, command: Command, until: float) -> list[Reply]:
        """Return the reply of each node. Raise StoreUnavailable if there is none."""
        nodes = await self._servers.nodes(until)
        if not nodes:
            raise StoreUnavailable("no node of the Redis Cluster serves a slot")
        calls = [node.run([command], until) for node, _ in nodes]
        return [reply for [reply] in await gather_bounded(calls, NODES_CONCURRENCY_MAX)]

    async def _run(self, command: Command, *, writes: bool = False) -> Any:
        [reply] = await self._servers.run([command], _open_deadline(), writes=writes)
        return _value_or_raise(reply)


def create_servers(settings: RedisSettings) -> Servers:
    """Return the server or cluster of the settings, without connecting."""
    options = settings.connection()
    if "path" in options:
        return SingleServer(_node(settings, options))
    if "host" not in options:
        return SentinelServer(
            create_sentinels(settings),
            lambda address: _node(settings, _at(options, address), "the primary of the Sentinels", primary_only=True),
        )
    if not settings.cluster:
        return SingleServer(_node(settings, options))
    seed = options["host"], options["port"]
    return Cluster(
        seed,
        lambda address: _node(
            settings, _at(options, address), "" if address == seed else "as the Redis Cluster announces it"
        ),
    )


def create_sentinels(settings: RedisSettings) -> Sentinels:
    """Return the Sentinels of the settings, without connecting."""
    return Sentinels([_node(settings, options) for options in settings.sentinel_connections()], settings.service)


def _at(options: dict[str, Any], address: Address) -> dict[str, Any]:
    return options | {"host": address[0], "port": address[1]}


def _node(settings: RedisSettings, options: dict[str, Any], origin: str = "", *, primary_only: bool = False) -> Node:
    """Return a node. `origin` states where its address comes from, if not from the settings."""
    more = {
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_timeout": None,  # Each request has its own deadline.
        "protocol": 2,
        "driver_info": None,
        **({} if "path" in options else {"socket_keepalive": True}),
    }
    tls = options.get("connection_class") is SSLConnection
    kept = {name: value for name, value in options.items() if name != "connection_class"}
    return Node(
        partial(connection_type(options.get("connection_class")), **kept, **more),
        options.get("db", 0),
        settings.connections_max,
        settings.connect_timeout_s,
        place=f" at {options['host']}:{options['port']} ({origin})" if origin else " with TLS" * tls,
        primary_only=primary_only,
    )


def _open_deadline() -> float:
    return time.monotonic() + OPEN_TIMEOUT_S


def _parse_info(reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        raise StoreUnavailable("the server does not respond like Redis")
    lines = [line.partition(":") for line in reply.decode(errors="replace").splitlines()]
    return {name: text for name, colon, text in lines if colon}


def _check_server(info: dict[str, str], *, cluster: bool) -> None:
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < VERSION_MIN:
        raise Unsupported(f"Redis {version} is too old: 7.0 or newer is required")
    if not cluster and info.get("redis_mode") == "cluster":
        raise InvalidOperation("this Redis is a cluster: its `stores` entry needs `cluster: true`")


def _names_and_index(spec: TableSpec, *, cluster: bool) -> tuple[KeyNames, PartitionIndex | None]:
    """Return the names of a table's records and the index of its partitions. Raise InvalidOperation for bad options."""
    options = spec.options if isinstance(spec.options, RedisTableOptions) else RedisTableOptions()
    names = KeyNames(options.prefix or f"{spec.name_in_store}:", spec.key, hash_tag=options.hash_tag)
    return names, _partition_index(names, spec.key, options, cluster=cluster)


def _partition_index(
    names: KeyNames, key: KeySchema, options: RedisTableOptions, *, cluster: bool
) -> PartitionIndex | None:
    """Return the index of a composite table, if it is in the slot of the partition's records."""
    if (options.hash_tag or options.exclusive) and not key.composite:
        raise InvalidOperation("`hash_tag` and `exclusive` need a composite key")
    if options.hash_tag and not names.keep_partitions_together:
        raise InvalidOperation("`hash_tag` has no effect after a `prefix` with `{}`")
    if key.composite and (names.keep_partitions_together or not cluster):
        return PartitionIndex(names, key, exclusive=options.exclusive)
    if options.exclusive:
        raise InvalidOperation("on a Redis Cluster `exclusive` needs `hash_tag: true`")
    return None


def _value_or_raise(reply: Reply) -> Any:
    if isinstance(reply, TableError):
        raise reply
    if isinstance(reply, Exception):
        raise from_error_reply(reply)
    return reply
