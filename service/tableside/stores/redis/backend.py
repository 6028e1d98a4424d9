"""The Redis backend: settings, opening a single server or a Redis Cluster, and its tables.

Each record is a string. Gets are one MGET. Puts and deletes without a condition are one call of a script. A write that
depends on the current record reads it, decides in Python, and replaces the record by a script if it has not changed.
Records expire by Redis's own expiry and the server's clock.
"""

import time
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator, model_validator
from redis.asyncio.connection import parse_url

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
    check_port,
    gather_bounded,
    now_ms,
    url_place,
)
from .cluster import NODES_CONCURRENCY_MAX, Address, Cluster
from .connection import Node
from .driver import Reply, connection_type
from .errors import from_error_reply, from_unexpected_reply
from .keys import TABLES_KEY, KeyNames, checked_prefix, slot_of
from .partition_index import PartitionIndex
from .scripts import Command
from .store import RedisStore
from .topology import Servers, SingleServer

VERSION_MIN = (7, 0)
"""The first version with PEXPIRETIME, which returns a key's expiry."""

OPEN_TIMEOUT_S = 5.0
"""How long opening or listing tables waits for the server."""

PING_TIMEOUT_S = 1.8

NO_EVICTION = "noeviction"

_URL_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname", "db"}


class RedisSettings(BaseModel, frozen=True, extra="forbid"):
    """How to connect to Redis. `connections_max` applies to each node. The URL may also contain user and password."""

    url: SecretStr
    cluster: bool = False
    username: str | None = None
    password: SecretStr | None = None
    connections_max: int = Field(default=32, ge=1, le=10_000)
    connect_timeout_s: float = Field(default=2.0, gt=0, le=60)

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        try:
            options = dict(parse_url(url.get_secret_value()))
        except ValueError:
            raise ValueError("must be redis://HOST:PORT/DB, rediss://… or unix://PATH") from None
        known = {"username", "password", "host", "port", "path", "connection_class"}
        check_port(url.get_secret_value())
        if unknown := sorted(set(options) - known - _URL_OPTIONS):
            raise ValueError(f"has unknown options: {', '.join(unknown)}")
        return url

    @model_validator(mode="after")
    def _check_cluster(self) -> "RedisSettings":
        options = self.connection()
        if self.cluster and (options.get("db") or "path" in options):
            raise ValueError("a Redis Cluster supports only TCP addresses and database 0")
        return self

    @property
    def place(self) -> str:
        """Return the server's address."""
        return url_place(self.url.get_secret_value())

    def connection(self) -> dict[str, Any]:
        """Return the driver's options for a connection, including secrets."""
        options: dict[str, Any] = dict(parse_url(self.url.get_secret_value()))
        if self.username is not None:
            options["username"] = self.username
        if self.password is not None:
            options["password"] = self.password.get_secret_value()
        return options


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
        """Raise a TableError unless the server, or any node of a cluster, responds and has not just rejected writes."""
        until = time.monotonic() + PING_TIMEOUT_S
        nodes = await self._servers.nodes(until)
        pings = [node.run([Command(("PING",))], until, writes=False) for node, _ in nodes]
        replies = [reply for [reply] in await gather_bounded(pings, NODES_CONCURRENCY_MAX)] if pings else []
        if not any(reply == b"PONG" for reply in replies):
            raise from_unexpected_reply(replies[0] if replies else None)
        self._health.check()

    def connections(self) -> Connections:
        """Return the current number of connections, to all nodes of a cluster."""
        return self._servers.connections()

    async def close(self) -> None:
        """Close the connections."""
        self._servers.close()

    async def _server_infos(self) -> list[dict[str, str]]:
        """Return the fields of INFO for each node."""
        until, infos = _open_deadline(), []
        for node, _ in await self._servers.nodes(until):
            [reply] = await node.run([Command(("INFO",), ())], until, writes=False)
            infos.append(_parse_info(_value_or_raise(reply)))
        return infos

    async def _run(self, command: Command, *, writes: bool = False) -> Any:
        [reply] = await self._servers.run([command], _open_deadline(), writes=writes)
        return _value_or_raise(reply)


def create_servers(settings: RedisSettings) -> Servers:
    """Return the server or cluster of the settings, without connecting."""
    options = settings.connection()
    connection = connection_type(options.pop("connection_class", None))
    if "path" not in options:
        options["socket_keepalive"] = True
    options |= {
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_timeout": None,  # Each request has its own deadline.
        "protocol": 2,
        "driver_info": None,
    }

    def node(address: Address | None) -> Node:
        host = {} if address is None else {"host": address[0], "port": address[1]}
        return Node(
            partial(connection, **options, **host),
            int(options.get("db") or 0),
            settings.connections_max,
            settings.connect_timeout_s,
        )

    if not settings.cluster:
        return SingleServer(node(None))
    address = (options.pop("host", "localhost"), options.pop("port", 6379))
    return Cluster(address, node)


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
