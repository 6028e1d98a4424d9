"""Reads the URL of a Redis. Everything that can be wrong with it without a connection is an error.

The driver's own function ignores what it does not understand: it uses database 0 for `/cache`, 12 for `/1/2`, and
localhost for a URL whose password has an unencoded `#`.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection

from ...core import check_port

Address: TypeAlias = tuple[str, int]

PORT = 6379
SENTINEL_PORT = 26379

_FORMS = "redis://HOST:PORT/DB, rediss://… for TLS, redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB or unix://PATH"
_SCHEME = re.compile(r"(redis|valkey)(?P<tls>s?)(?P<sentinel>\+sentinel)?|(?P<unix>unix)")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OPTIONS = {
    "db": "[0-9]+",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "(?i)true|false|yes|no|1|0",
    **dict.fromkeys(_FILES, ".+"),
}
"""The query parameters, and the pattern of their values."""


class RedisUrl(msgspec.Struct, frozen=True):
    """The driver's options for a connection, including secrets.

    With `sentinels`, these know the address: that of the primary of `service`.
    """

    options: dict[str, Any]
    sentinels: tuple[Address, ...] = ()
    service: str = ""


def parse_redis_url(url: str) -> RedisUrl:
    """Return the parts of a URL. Raise ValueError, with a message that repeats no part of it, if it is invalid."""
    parts = _split(url)
    scheme = _SCHEME.fullmatch(parts.scheme)
    if scheme is None:
        raise ValueError(f"must be {_FORMS}. valkey:// and valkeys:// have the same meaning")
    options = _query(parts.query)
    options |= {name: unquote(text) for name in ("username", "password") if (text := getattr(parts, name))}
    if scheme["unix"]:
        if parts.hostname or not parts.path:
            raise ValueError("must be unix:// and an absolute path, such as unix:///run/redis.sock")
        return RedisUrl(options | {"path": unquote(parts.path), "connection_class": UnixDomainSocketConnection})
    database, service = parts.path, ""
    if scheme["sentinel"]:
        service, _, database = parts.path.removeprefix("/").partition("/")
        if not service:
            raise ValueError(f"names no service of the Sentinels: it must be {_FORMS}")
    options["db"] = _database(database, options.get("db"))
    if scheme["tls"]:
        options["connection_class"] = SSLConnection
    if scheme["sentinel"]:
        hosts = parts.netloc.rpartition("@")[2].split(",")
        return RedisUrl(options, tuple(_address(host, SENTINEL_PORT) for host in hosts), unquote(service))
    host, port = _address(parts.netloc.rpartition("@")[2], PORT)
    return RedisUrl(options | {"host": host, "port": port})


def check_tls(options: Mapping[str, Any]) -> None:
    """Check that the files for TLS can be used. Raise ValueError, with the name of the option, if not."""
    given = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if given and options.get("connection_class") is not SSLConnection:
        raise ValueError(f"has {min(given)}, which needs rediss://")
    for name in _FILES:
        if name in options and not (os.path.isfile(options[name]) and os.access(options[name], os.R_OK)):
            raise ValueError(f"names a file as {name} that does not exist or cannot be read")
    if not given:
        return
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("has ssl_keyfile without ssl_certfile")
    try:
        SSLConnection(**given).ssl_context.get()
    except OSError:  # ssl.SSLError too
        raise ValueError("names TLS files that are not PEM, or a key of another certificate") from None


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("has an invalid host, or a user or password that is not encoded") from None
    if url.count("@") != parts.netloc.count("@"):
        raise ValueError("has a user or password that is not encoded: write / as %2F, ? as %3F, # as %23 and @ as %40")
    if "#" in url:
        raise ValueError("has a #: the number of the database is a path, such as /5")
    return parts


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
    if "db" in options:
        options["db"] = int(options["db"])
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() in ("true", "yes", "1")
    return options


def _database(path: str, option: int | None) -> int:
    match = re.fullmatch("/?([0-9]*)/?", path)
    if match is None:
        raise ValueError("has a path that is not the number of a database, such as /0")
    if option is None or not match[1]:
        return int(match[1] or option or 0)
    if int(match[1]) != option:
        raise ValueError("has two databases: one in its path, and another as db")
    return option


def _address(text: str, default_port: int) -> Address:
    check_port(f"//{text}")
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("has no host")
    return parts.hostname, parts.port or default_port
