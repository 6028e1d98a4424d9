"""Records in Redis, one string each: a single server or a Redis Cluster.

Gets are one MGET, puts and deletes without a condition one call of a script; what must be read before it is decided is
read, decided in Python and replaced by a script if it is still what was read. Expiry is Redis's own, by its clock.
"""

import asyncio
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, SecretStr, ValidationInfo, field_validator, model_validator
from redis.asyncio.connection import parse_url

from ...core import (
    Clock,
    Connections,
    InvalidOperation,
    StoreUnavailable,
    TableError,
    TableSpec,
    Unsupported,
    gather_bounded,
    now_ms,
)
from .cluster import NODES_AT_ONCE, Address, Cluster
from .connection import Node, Reply, link_type
from .errors import failed, refused
from .keys import TABLES, Names, checked_prefix, slot_of
from .scripts import Command
from .store import RedisStore
from .topology import Servers, SingleServer

VERSION_MIN = (7, 0)
"""PEXPIRETIME, which tells when a key expires, came with it."""

ANSWER_MAX_S = 5.0
"""How long the server is waited for when a table is opened."""

PING_MAX_S = 1.8

NO_EVICTION = "noeviction"

_URL_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname", "db"}


class RedisSettings(BaseModel, frozen=True, extra="forbid"):
    """Where Redis is. `connections_max` is for each node; user and password may stand in the URL instead."""

    url: SecretStr
    cluster: bool = False
    username: str | None = None
    password: SecretStr | None = None
    connections_max: int = Field(default=32, ge=1, le=10_000)
    connect_timeout_s: float = Field(default=2.0, gt=0, le=60)

    @field_validator("url")
    @classmethod
    def _readable(cls, url: SecretStr) -> SecretStr:
        try:
            found = dict(parse_url(url.get_secret_value()))
        except ValueError:
            raise ValueError("is redis://HOST:PORT/DB, rediss://… or unix://PATH") from None
        own = {"username", "password", "host", "port", "path", "connection_class"}
        if unknown := sorted(set(found) - own - _URL_OPTIONS):
            raise ValueError(f"has unknown options: {', '.join(unknown)}")
        return url

    @model_validator(mode="after")
    def _fitting(self) -> "RedisSettings":
        where = self.connection()
        if self.cluster and (where.get("db") or "path" in where):
            raise ValueError("a Redis Cluster has TCP addresses and the database 0 only")
        return self

    def connection(self) -> dict[str, Any]:
        """Return what the driver is told of a connection, secrets and all."""
        told: dict[str, Any] = dict(parse_url(self.url.get_secret_value()))
        if self.username is not None:
            told["username"] = self.username
        if self.password is not None:
            told["password"] = self.password.get_secret_value()
        return told


class RedisTableOptions(BaseModel, frozen=True, extra="forbid"):
    """What the names of a table's records begin with; the table's name in the store and `:` if nothing else."""

    prefix: str | None = None

    @field_validator("prefix")
    @classmethod
    def _checked(cls, prefix: str | None, info: ValidationInfo) -> str | None:
        return None if prefix is None else checked_prefix(prefix)


class RedisBackend:
    """The connections to one server or cluster."""

    Settings = RedisSettings
    TableOptions = RedisTableOptions
    single_process = False

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @classmethod
    async def open(cls, settings: RedisSettings, clock: Clock = now_ms) -> "RedisBackend":
        """Return a backend that connects when it is first asked; time is the server's, not the clock's."""
        return cls(servers_of(settings))

    async def store(self, spec: TableSpec) -> "RedisStore":
        """Return the records of one table, which in Redis are there without being made.

        Raise InvalidOperation if the server is not of the kind that the settings say, Unsupported if it is too old.
        """
        options = spec.options or RedisTableOptions()
        facts = await self._facts()
        for one in facts:
            _check(one, cluster=self._servers.several)
        if spec.create:
            await self._asked(Command(("SADD", TABLES, spec.name_in_store), (), slot_of(TABLES)), writes=True)
        names = Names(options.prefix or f"{spec.name_in_store}:", spec.key)
        keeps = all(one.get("maxmemory_policy") == NO_EVICTION for one in facts)
        return RedisStore(self._servers, spec, names, tokens=keeps)

    async def tables(self) -> list[str]:
        """Return the names of the tables that were opened so that they might be made."""
        members = await self._asked(Command(("SMEMBERS", TABLES), (), slot_of(TABLES)))
        return sorted(member.decode() for member in members)

    async def ping(self) -> None:
        """Return if a server answers; of a cluster any that serves a slot."""
        until = asyncio.get_running_loop().time() + PING_MAX_S
        nodes = await self._servers.nodes(until)
        works = [node.run([Command(("PING",))], until, writes=False) for node, _ in nodes]
        replies = [reply for [reply] in await gather_bounded(works, NODES_AT_ONCE)] if works else []
        if not any(reply == b"PONG" for reply in replies):
            raise failed(replies[0] if replies else None)

    def connections(self) -> Connections:
        """Return how many connections there are now; of a cluster, those to all its nodes."""
        return self._servers.connections()

    async def close(self) -> None:
        """Let go of the connections."""
        self._servers.close()

    async def _facts(self) -> list[dict[str, str]]:
        """Return what the servers say of themselves."""
        until, facts = _soon(), []
        for node, _ in await self._servers.nodes(until):
            [reply] = await node.run([Command(("INFO",), ())], until, writes=False)
            facts.append(_facts(_raise(reply)))
        return facts

    async def _asked(self, command: Command, *, writes: bool = False) -> Any:
        [reply] = await self._servers.run([command], _soon(), writes=writes)
        return _raise(reply)


def servers_of(settings: RedisSettings) -> Servers:
    """Return the server or cluster, to which nothing is connected yet."""
    told = settings.connection()
    make = link_type(told.pop("connection_class", None))
    if "path" not in told:
        told["socket_keepalive"] = True
    told |= {
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_timeout": None,  # Every request has its own deadline.
        "protocol": 2,
        "driver_info": None,
    }

    def node(address: Address | None) -> Node:
        where = {} if address is None else {"host": address[0], "port": address[1]}
        return Node(
            partial(make, **told, **where),
            int(told.get("db") or 0),
            settings.connections_max,
            settings.connect_timeout_s,
        )

    if not settings.cluster:
        return SingleServer(node(None))
    address = (told.pop("host", "localhost"), told.pop("port", 6379))
    return Cluster(address, node)


def _soon() -> float:
    return asyncio.get_running_loop().time() + ANSWER_MAX_S


def _facts(reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        raise StoreUnavailable("what answers does not speak as Redis does")
    lines = [line.partition(":") for line in reply.decode(errors="replace").splitlines()]
    return {name: text for name, colon, text in lines if colon}


def _check(facts: dict[str, str], *, cluster: bool) -> None:
    version = facts.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < VERSION_MIN:
        raise Unsupported(f"Redis {version}: 7.0 or newer is needed")
    if not cluster and facts.get("redis_mode") == "cluster":
        raise InvalidOperation("this Redis is a cluster: its `stores` entry needs `cluster: true`")


def _raise(reply: Reply) -> Any:
    if isinstance(reply, TableError):
        raise reply
    if isinstance(reply, Exception):
        raise refused(reply)
    return reply
