"""The names in `Host` that the service accepts, the prefix of its paths, and the addresses of clients behind proxies.

The validation of `Host` protects against DNS rebinding: a page may read responses from its own host, even if the owner
of the name now points it at this service. The page's requests then have that name in `Host`. An IP address, `localhost`
or a name without a dot, which cannot be registered, is never the host of such a page.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.types import Scope

from ..auth import Forbidden
from ..settings import ROOT_PATH

HOSTS_KEPT_MAX = 1000
"""The number of values of `Host` that are kept with the decision about them."""

HOPS_MAX = 16
"""The maximum number of addresses in `X-Forwarded-For` that are considered."""

_ADDRESS = r"(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.]+(%[0-9A-Za-z._~-]+)?\])(:\d*)?"
_FORWARDED = re.compile(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([0-9.]+)(?::\d+)?|([0-9a-fA-F:.]{2,45})")
_WITHOUT_DOT = r"[A-Za-z0-9_-]+(:\d*)?"


class AllowedHosts:
    """The host names of this service.

    `names` are allowed, and IP addresses and `localhost` always. Without `names`, every host is allowed, except in a
    `local` service, which allows only names without a dot then. With `names`, it allows names without a dot as well.
    """

    def __init__(self, names: Iterable[str], *, local: bool = False) -> None:
        self._local = local
        self.change(names)

    def change(self, names: Iterable[str]) -> None:
        """Replace the names."""
        given = tuple(names)
        patterns = [_ADDRESS, *map(_pattern, (*given, "localhost", "*.localhost"))]
        if self._local:
            patterns.append(_WITHOUT_DOT)
        self._match = lru_cache(HOSTS_KEPT_MAX)(re.compile("|".join(patterns), re.IGNORECASE).fullmatch)
        self.allows_any = not given and not self._local

    def check(self, host: bytes | None) -> None:
        """Raise Forbidden if the value of `Host` is not an allowed name or an IP address."""
        if host is not None and not self._match(host.decode("latin-1")):
            raise Forbidden("the Host header does not name this service; `hosts` in its configuration lists its names")


def _pattern(name: str) -> str:
    below = name.startswith("*.")
    return (r"[A-Za-z0-9_.-]+\." if below else "") + re.escape(name.removeprefix("*.")) + r"\.?(:\d*)?"


class PathPrefix:
    """The prefix of the service's paths behind a reverse proxy: `X-Forwarded-Prefix` of the `proxies`, or `root_path`.

    It is removed from paths, and becomes the `root_path` of requests, which links in responses begin with. A path
    without it is valid too: some proxies remove it, and probes do not have it.
    """

    def __init__(self, root_path: str, proxies: Iterable[IPv4Network | IPv6Network]) -> None:
        self.proxies = TrustedProxies()
        self.change(root_path, proxies)

    def change(self, root_path: str, proxies: Iterable[IPv4Network | IPv6Network]) -> None:
        """Replace the prefix and the trusted proxies."""
        self._root_path, self.proxies.networks = root_path, tuple(proxies)
        self.is_possible = bool(root_path or self.proxies.networks)

    def apply(self, scope: Scope) -> None:
        """Change the path and the `root_path` of a request."""
        root_path, raw = self._root_path, scope["raw_path"]
        trusted = scope["headers"] if self.proxies.networks and scope.get("client") else ()
        given = [value for name, value in trusted if name == b"x-forwarded-prefix"]
        if len(given) == 1 and self.proxies.trusts(scope["client"][0]):
            text = given[0].decode("latin-1").rstrip("/")
            root_path = text if ROOT_PATH.fullmatch(text) else root_path
        if root_path:
            scope["root_path"] = root_path
            if (raw + b"/").startswith(f"{root_path}/".encode()):
                scope["raw_path"] = raw[len(root_path) :] or b"/"
                scope["path"] = scope["path"][len(root_path) :] or "/"


class TrustedProxies:
    """The proxies whose headers about their clients the service uses."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def trusts(self, address: str) -> bool:
        """Return whether an IP address is that of a proxy."""
        return any(ip_address(address) in network for network in self.networks)

    def client_address(self, scope: Scope) -> str | None:
        """Return the last address in `X-Forwarded-For` that is not a proxy's, or None for a Unix socket.

        Clients can send this header, so only addresses that a trusted proxy has added count.
        """
        if not scope.get("client"):
            return None
        address: str = scope["client"][0]
        given = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        hops = given.decode("latin-1").split(",")[-HOPS_MAX:]
        while hops and self.trusts(address) and (before := _forwarded_address(hops.pop())) is not None:
            address = before
        return address


def _forwarded_address(text: str) -> str | None:
    """Return an address without its port, or None if it is not valid."""
    match = _FORWARDED.fullmatch(text.strip())
    try:
        return None if match is None else str(ip_address(match[1] or match[2] or match[3]))
    except ValueError:
        return None
