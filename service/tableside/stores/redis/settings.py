"""The settings of a Redis, and of a table in it, and its URL. All that can be wrong with them is an error.

The driver's own function for URLs ignores what it does not understand: it uses database 0 for `/cache`, 12 for `/1/2`,
and localhost for a URL whose password has an unencoded `#`.
"""

import os
import re
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import AfterValidator, BaseModel, Field, SecretStr, field_validator, model_validator
from redis.asyncio.connection import SSLConnection

from ...core import checked_url, split_url, url_place
from .connection import Node, TcpConnection, TlsConnection
from .keys import checked_prefix
from .servers import Address, Cluster, SentinelServer, Servers, SingleServer

PORT = 6379
SENTINEL_PORT = 26379

_FORMS = "redis://HOST:PORT/DB, rediss://… for TLS, or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB"
_SCHEME = re.compile(r"(redis|valkey)(?P<tls>s?)(?P<sentinel>\+sentinel)?")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OPTIONS = {
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "(?i)true|false|yes|no|1|0",
    **dict.fromkeys(_FILES, ".+"),
}
"""The query parameters, and the pattern of their values."""


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
        options = parse_redis_url(url.get_secret_value()).options
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        if not tls:
            return url
        if options.get("connection_class") is not SSLConnection:
            raise ValueError(f"has {min(tls)}, which needs rediss://")
        for name in _FILES:
            if name in tls and not (os.path.isfile(tls[name]) and os.access(tls[name], os.R_OK)):
                raise ValueError(f"names a file as {name} that does not exist or cannot be read")
        if "ssl_keyfile" in tls and "ssl_certfile" not in tls:
            raise ValueError("has ssl_keyfile without ssl_certfile")
        try:
            SSLConnection(**tls).ssl_context.get()
        except OSError:  # ssl.SSLError too
            raise ValueError("names TLS files that are not PEM, or a key of another certificate") from None
        return url

    @model_validator(mode="after")
    def _check_topology(self) -> "RedisSettings":
        url = self._parsed
        if self.cluster and (url.options.get("db") or "host" not in url.options):
            raise ValueError("a Redis Cluster supports only database 0, without Sentinels")
        if (self.sentinel_username or self.sentinel_password) and not url.sentinels:
            raise ValueError("sentinel_username and sentinel_password need a `url` with redis+sentinel://")
        return self

    @property
    def place(self) -> str:
        """Return the server's address."""
        return url_place(self.url.get_secret_value())

    @property
    def _parsed(self) -> "RedisUrl":
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


def _with_user(options: dict[str, Any], username: str | None, password: SecretStr | None) -> dict[str, Any]:
    user = {} if username is None else {"username": username}
    return options | user | ({} if password is None else {"password": password.get_secret_value()})


class RedisTableOptions(BaseModel, frozen=True, extra="forbid"):
    """The names of a table's records, and whether other tools add records.

    `prefix` is the start of the names of the Redis keys. By default it is the table's name in the store and `:`.
    `hash_tag` puts the first part of a composite key in braces, so that a Redis Cluster keeps a partition in one slot.
    `exclusive` states that only the service adds records, so that a scan of a partition needs only its index.
    """

    prefix: Annotated[str, AfterValidator(checked_prefix)] | None = None
    hash_tag: bool = False
    exclusive: bool = False


def create_servers(settings: RedisSettings) -> Servers:
    """Return the server or cluster of the settings, without connecting."""
    options = settings.connection()
    if "host" not in options:
        origin = "the primary of the Sentinels"
        return SentinelServer(
            [_node(settings, each) for each in settings.sentinel_connections()],
            settings.service,
            lambda address: _node(settings, _at(options, address), origin, primary_only=True),
        )
    if not settings.cluster:
        return SingleServer(_node(settings, options))
    seed, announced = (options["host"], options["port"]), "as the Redis Cluster announces it"
    return Cluster(seed, lambda address: _node(settings, _at(options, address), "" if address == seed else announced))


def _at(options: dict[str, Any], address: Address) -> dict[str, Any]:
    return options | {"host": address[0], "port": address[1]}


def _node(settings: RedisSettings, options: dict[str, Any], origin: str = "", *, primary_only: bool = False) -> Node:
    """Return a node. `origin` states where its address comes from, if not from the settings."""
    tls = options.get("connection_class") is SSLConnection
    kept: dict[str, Any] = {name: value for name, value in options.items() if name != "connection_class"}
    kept |= {
        "socket_connect_timeout": settings.connect_timeout_s,
        "socket_timeout": None,  # Each request has its own deadline.
        "protocol": 2,
        "driver_info": None,
        "socket_keepalive": True,
    }
    return Node(
        partial(TlsConnection if tls else TcpConnection, **kept),
        options.get("db", 0),
        settings.connections_max,
        settings.connect_timeout_s,
        place=f" at {options['host']}:{options['port']} ({origin})" if origin else " with TLS" * tls,
        primary_only=primary_only,
    )


class RedisUrl(msgspec.Struct, frozen=True):
    """The driver's options for a connection, including secrets.

    With `sentinels`, these know the address: that of the primary of `service`.
    """

    options: dict[str, Any]
    sentinels: tuple[Address, ...] = ()
    service: str = ""


def parse_redis_url(url: str) -> RedisUrl:
    """Return the parts of a URL. Raise ValueError, with a message that repeats no part of it, if it is invalid."""
    try:
        parts = split_url(url)
    except ValueError:
        raise ValueError("has an invalid host, or a user or password that is not encoded") from None
    if url.count("@") != parts.netloc.count("@"):
        raise ValueError("has a user or password that is not encoded: write / as %2F, ? as %3F, # as %23 and @ as %40")
    if "#" in url:
        raise ValueError("has a #: the number of the database is a path, such as /5")
    scheme = _SCHEME.fullmatch(parts.scheme)
    if scheme is None:
        raise ValueError(f"must be {_FORMS}. valkey:// and valkeys:// have the same meaning")
    options = _query(parts.query)
    options |= {name: unquote(text) for name in ("username", "password") if (text := getattr(parts, name))}
    database, service = parts.path, ""
    if scheme["sentinel"]:
        service, _, database = parts.path.removeprefix("/").partition("/")
        if not service:
            raise ValueError(f"names no service of the Sentinels: it must be {_FORMS}")
    if re.fullmatch("/?[0-9]*/?", database) is None:
        raise ValueError("has a path that is not the number of a database, such as /0")
    options["db"] = int(database.strip("/") or 0)
    if scheme["tls"]:
        options["connection_class"] = SSLConnection
    if scheme["sentinel"]:
        hosts = parts.netloc.rpartition("@")[2].split(",")
        return RedisUrl(options, tuple(_address(host, SENTINEL_PORT) for host in hosts), unquote(service))
    host, port = _address(parts.netloc.rpartition("@")[2], PORT)
    return RedisUrl(options | {"host": host, "port": port})


def _query(text: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        raise ValueError("has a query that is not NAME=VALUE&NAME=VALUE") from None
    options: dict[str, Any] = dict(pairs)
    if unknown := sorted(options.keys() - _OPTIONS):
        raise ValueError(f"has unknown options: {', '.join(unknown)}. Known are {', '.join(sorted(_OPTIONS))}")
    if len(options) < len(pairs):
        raise ValueError("has an option twice")
    for name, value in options.items():
        if not re.fullmatch(_OPTIONS[name], value):
            raise ValueError(f"has an invalid {name}: it must match {_OPTIONS[name]}")
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() in ("true", "yes", "1")
    return options


def _address(text: str, default_port: int) -> Address:
    parts = urlsplit(checked_url(f"//{text}"))
    return parts.hostname or "", parts.port or default_port
