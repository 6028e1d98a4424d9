"""The prefix of the service's paths behind a reverse proxy: `root_path`, or `X-Forwarded-Prefix`."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.types import Scope

from ..settings import ROOT_PATH


class PathPrefix:
    """Removes the prefix from paths, and sets the `root_path` of requests, which links in responses begin with.

    The prefix is `X-Forwarded-Prefix` if one of the `proxies` sends it, else `root_path`. A path without the prefix is
    valid too: some proxies remove it, and probes do not have it.
    """

    def __init__(self, root_path: str, proxies: Iterable[IPv4Network | IPv6Network]) -> None:
        self.change(root_path, proxies)

    def change(self, root_path: str, proxies: Iterable[IPv4Network | IPv6Network]) -> None:
        """Replace the prefix and the trusted proxies."""
        self._root_path, self._proxies = root_path, tuple(proxies)

    def apply(self, scope: Scope) -> None:
        """Change the path and the `root_path` of a request."""
        root_path = (self._forwarded(scope) if self._proxies else "") or self._root_path
        if not root_path:
            return
        scope["root_path"], raw = root_path, scope["raw_path"]
        if (raw + b"/").startswith(f"{root_path}/".encode()):
            scope["raw_path"] = raw[len(root_path) :] or b"/"
            scope["path"] = scope["path"][len(root_path) :] or "/"

    def _forwarded(self, scope: Scope) -> str:
        """Return the prefix that a trusted proxy has sent, or nothing if it is not valid."""
        given = [value for name, value in scope["headers"] if name == b"x-forwarded-prefix"]
        if len(given) != 1 or not self._trusts(scope):
            return ""
        text: str = given[0].decode("latin-1").rstrip("/")
        return text if ROOT_PATH.fullmatch(text) else ""

    def _trusts(self, scope: Scope) -> bool:
        client = scope.get("client")
        if not client:
            return False
        address = ip_address(client[0])
        return any(address in network for network in self._proxies)
