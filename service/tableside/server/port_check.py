"""Checks that the port is free, before the stores are opened."""

import errno
import logging
import socket
import sys
from typing import Any

from uvicorn.config import STARTUP_FAILURE

log = logging.getLogger(__name__)


def exit_if_in_use(host: str, port: int) -> None:
    """Exit the process with one line in the log if a socket has the port already. Other errors occur when listening."""
    for family, kind, protocol, _, address in _addresses(host, port):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    shown = f"[{host}]" if ":" in host else host
                    log.error("cannot start: %s:%s is in use: choose another --port", shown, port)
                    sys.exit(STARTUP_FAILURE)


def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    try:
        return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)]
    except OSError:
        return []
