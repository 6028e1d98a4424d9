"""The address of the service: its URL, TLS files, and the proxy that the environment names for it."""

import os
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from tableside_client.tls import Tls

URL_VARIABLE = "TABLESIDE_URL"


@dataclass(frozen=True, slots=True)
class Address:
    """The service's URL and how to connect to it. `tls` is None for an `http://` address, `proxy` if none is used."""

    url: str
    tls: Tls | None = None
    proxy: "EnvironmentProxy | None" = None

    @classmethod
    def resolve(cls, url: str, tls: Tls) -> "Address":
        """Fill in the defaults of the environment. Raises `ValueError` for an invalid address or proxy."""
        url = service_url(url)
        tls.require_https(url)
        proxy = environment_proxy(url)
        if proxy is not None:
            try:
                scheme = httpx.Proxy(proxy.url).url.scheme
            except (ValueError, httpx.InvalidURL):
                raise ValueError(f"{proxy.variable} must be the URL of an http, https or socks5 proxy") from None
            if scheme.startswith("socks") and find_spec("socksio") is None:
                raise ValueError(f"{proxy} needs the package socksio: pip install socksio")
        return cls(url, tls.with_environment() if url.startswith("https://") else None, proxy)

    @property
    def origin(self) -> str:
        """The URL without a path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def service_url(given: str) -> str:
    """Return `given`, or the value of `TABLESIDE_URL`. Raises `ValueError` if it is not a URL or has a password."""
    url = (given or os.environ.get(URL_VARIABLE, "")).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or not url.isprintable():
        raise ValueError(_not_a_url(url))
    if parts.username or parts.password:
        raise ValueError("url must not contain a user or a password, which plans and logs would show: use a token")
    return url


def _not_a_url(text: str) -> str:
    if not text:
        return f"url must be an http:// or https:// address. If it is omitted, {URL_VARIABLE} must be set"
    if "@" in text:  # it may have a password
        return "url must be an http:// or https:// address without a user or a password"
    host = "" if text.endswith(":") or not text.isprintable() else text.rpartition("://")[2]
    return f"url must be an http:// or https:// address{f', such as http://{host}' if host else ''}, not {text!r}"


@dataclass(frozen=True, slots=True)
class EnvironmentProxy:
    """The URL of a proxy, which may have a password, and the variable that names it."""

    url: str = field(repr=False)
    variable: str

    def __str__(self) -> str:
        place = self.url.rpartition("@")[2].rpartition("://")[2].strip("/")
        return f"the proxy {place} of {self.variable} (NO_PROXY names the hosts without a proxy)"


def environment_proxy(url: str) -> EnvironmentProxy | None:
    """Return the proxy for requests to a URL, None for loopback addresses and the hosts of `NO_PROXY`."""
    parts, found = urlsplit(url), getproxies()
    scheme = next((scheme for scheme in (parts.scheme, "all") if found.get(scheme)), None)
    host, port = (parts.hostname or "").rstrip("."), parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    address = _address(host)
    is_loopback = host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)
    excluded = (_excludes(name, host, port) for name in re.split(r"[,\s]+", found.get("no", "").lower()) if name)
    if scheme is None or is_loopback or any(excluded):
        return None
    proxy, variable = found[scheme], f"{scheme}_proxy"
    used = variable if os.environ.get(variable) else variable.upper()
    return EnvironmentProxy(proxy if "://" in proxy else f"http://{proxy}", used)


def _excludes(name: str, host: str, port: int | None) -> bool:
    """Return whether an element of `NO_PROXY`, maybe with a port, names a host: `*`, a domain, address or network."""
    name = name.rpartition("://")[2]
    if (parts := re.fullmatch(r"(\[.*\]|[^:]*):(\d+)", name)) is not None:
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
