"""Checks the address of a PostgreSQL server, the DSN, as far as that needs no connection."""

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote

from ...core import check_port, split_url

Address = tuple[str | None, int | None]
"""A host and a port, None for the driver's default."""

_SCHEME = re.compile(r"postgres(ql)?(\+\w+)?")
_INCOMPLETE_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MUST_ENCODE = (
    "has a character in its user or password that must be encoded: @ as %40, / as %2F, # as %23, ? as %3F, % as %25"
)

_CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslnegotiation": ("postgres", "direct"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
}
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_UNSUPPORTED = {
    "connect_timeout": "set the store's connect_timeout_s instead",
    "ssl": "set sslmode instead",
    **dict.fromkeys(("schema", "currentSchema"), "set the store's schema instead"),
    **dict.fromkeys(
        ("pgbouncer", "statement_cache_size", "prepared_statement_cache_size"), "remove it, poolers are recognized"
    ),
    **dict.fromkeys(
        (
            *("channel_binding", "fallback_application_name", "gssdelegation", "gssencmode", "hostaddr", "keepalives"),
            *("keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts", "replication"),
            *("max_protocol_version", "min_protocol_version", "require_auth", "requirepeer", "sslcertmode"),
            *("sslcompression", "sslsni", "tcp_user_timeout"),
        ),
        "the driver does not have it: remove it",
    ),
}


def checked_dsn(dsn: str) -> str:
    """Return a DSN as the driver expects it. Raise ValueError if no server can be reached with it."""
    scheme, separator, rest = dsn.strip().partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise ValueError("must begin with postgresql://")
    dsn = f"postgresql://{rest}"
    try:
        parts = split_url(dsn)
    except ValueError:  # its text may contain the password
        raise ValueError("is not a URL") from None
    if parts.fragment or parts.netloc.count("@") > 1 or "@" in parts.path or _INCOMPLETE_ESCAPE.search(parts.netloc):
        raise ValueError(_MUST_ENCODE)
    try:
        given = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(_MUST_ENCODE if "@" in parts.query else "has a parameter without a value") from None
    for name, value in given.items():
        if advice := _UNSUPPORTED.get(name):
            raise ValueError(f"has the parameter {name!r}, which is not supported: {advice}")
        if value not in _CHOICES.get(name, (value,)):
            raise ValueError(f"has an invalid {name}: use {', '.join(_CHOICES[name])}")
    _check_ports(parts, given)
    _check_files(given)
    return dsn


def parameters(dsn: str) -> dict[str, str]:
    """Return the parameters of a checked DSN."""
    return dict(parse_qsl(split_url(dsn).query))


def addresses(dsn: str) -> list[Address]:
    """Return the hosts and ports of a checked DSN, which are tried one after the other."""
    given, hosts = parameters(dsn), split_url(dsn).netloc.rpartition("@")[2]
    if given.get("target_session_attrs") == "prefer-standby":
        return [(None, None)]  # the driver compares all of them
    named = [_host_and_port(text) for text in (hosts or given.get("host", "")).split(",")]
    ports = [int(port) for port in given.get("port", "").split(",") if port]
    return [(host, ports[min(index, len(ports) - 1)] if ports else port) for index, (host, port) in enumerate(named)]


def without_hosts(dsn: str) -> str:
    """Return a checked DSN without its hosts and their ports. The driver splits DSNs by `urlsplit`."""
    return re.sub("^(postgresql://(?:[^/?#]*@)?)[^/?#@]*", r"\1", dsn)


def _check_ports(parts: SplitResult, given: Mapping[str, str]) -> None:
    hosts, ports = parts.netloc.rpartition("@")[2].split(","), given.get("port", "").split(",")
    try:
        for text in [f"//{host}" for host in hosts] + [f"//host:{port}" for port in ports]:
            check_port(text)
    except ValueError:
        if "@" in parts.query:  # a password with a question mark
            raise ValueError(_MUST_ENCODE) from None
        raise


def _check_files(given: Mapping[str, str]) -> None:
    mode = given.get("sslmode", "prefer")
    for name in _FILES:
        if name in given and mode != "disable" and not os.access(given[name], os.R_OK):
            raise ValueError(f"has a parameter {name!r} whose file does not exist or cannot be read")
    root = given.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")
    if mode.startswith("verify") and not root and not (Path.home() / ".postgresql/root.crt").exists():
        raise ValueError(f"needs the parameter 'sslrootcert', a file of certificates, for the sslmode {mode!r}")
    if root and mode.startswith("verify"):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(root)
        except OSError:
            raise ValueError("has a parameter 'sslrootcert' whose file has no certificates") from None


def _host_and_port(text: str) -> Address:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    return unquote(host) or None, int(port) if port else None
