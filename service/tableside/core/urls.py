"""Checks URLs in settings, shortens them for logs, and finds the proxy for an address by the rules of the client."""

import os
import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

_SEVERAL_HOSTS = re.compile("([^/?#]*//(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)")


def split_url(url: str) -> SplitResult:
    """Split a URL that may have several hosts. Raise ValueError if it is invalid.

    `urlsplit` of newer Pythons accepts an IPv6 address only as the first host.
    """
    if (several := _SEVERAL_HOSTS.match(url)) is None:
        return urlsplit(url)
    for host in several[2].split(","):
        urlsplit(f"//{host}")
    parts = urlsplit(several[1] + "host" + url[several.end() :])
    return parts._replace(netloc=parts.netloc.removesuffix("host") + several[2])


def checked_url(url: str) -> str:
    """Return a URL with a host. Raise ValueError if it has none, or a port that is not a number from 1 to 65535."""
    check_port(url)
    if not urlsplit(url).hostname:
        raise ValueError("has no host")
    return url


def check_port(url: str) -> None:
    """Raise ValueError if a URL has a port that is not a number from 1 to 65535."""
    try:
        valid = urlsplit(url).port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("has a port that is not a number from 1 to 65535, or an invalid host")


def url_place(url: str) -> str:
    """Return the host, port and path of a URL, without user, password and parameters.

    If the password is not encoded, so that it cannot be separated from the rest, return only this sentence.
    """
    parts = split_url(url)
    if url.count("@") != parts.netloc.count("@"):
        return "an address with an unencoded password"
    return parts.netloc.rpartition("@")[2] + parts.path


_PORTS = {"http": 80, "https": 443}
_WITH_PORT = re.compile(r"(\[.*\]|[^:]*):(\d+)")


@dataclass(frozen=True, slots=True)
class EnvironmentProxy:
    """The URL of a proxy, which may have a password, and the variable that names it."""

    url: str = field(repr=False)
    variable: str

    def __str__(self) -> str:
        place = self.url.rpartition("@")[2].rpartition("://")[2].strip("/")
        return f"the proxy {place} of {self.variable} (NO_PROXY names the hosts without a proxy)"


def environment_proxy(url: str) -> EnvironmentProxy | None:
    """Return the proxy for requests to a URL, None if there is none, or if `NO_PROXY` names the host.

    Loopback addresses have none. The variables may have lower or upper case.
    """
    parts, found = urlsplit(url), getproxies()
    scheme = next((scheme for scheme in (parts.scheme, "all") if found.get(scheme)), None)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    address = _address(host)
    is_loopback = address.is_loopback if address else f".{host}".endswith(".localhost")
    excluded = (_excludes(name, host, port) for name in re.split(r"[,\s]+", found.get("no", "").lower()) if name)
    if scheme is None or is_loopback or any(excluded):
        return None
    proxy, variable = found[scheme], f"{scheme}_proxy"
    used = variable if os.environ.get(variable) else variable.upper()
    return EnvironmentProxy(proxy if "://" in proxy else f"http://{proxy}", used)


def _excludes(name: str, host: str, port: int | None) -> bool:
    """Return whether an element of `NO_PROXY` names a host. It is `*`, a domain, an address or a network.

    It may end with a port.
    """
    name = name.rpartition("://")[2]
    if (parts := _WITH_PORT.fullmatch(name)) is not None:
        name = parts[1]
        if int(parts[2]) != port:
            return False
    domain = name.strip("[]").removeprefix("*").strip(".")
    if not domain:
        return name == "*"
    if (address := _address(host)) is None:
        return host == domain or host.endswith(f".{domain}")
    try:
        return address in ip_network(domain, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
