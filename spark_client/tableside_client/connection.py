"""How an executor reaches a service: a description that travels, and one client per Python worker."""

import os
import threading
from dataclasses import dataclass, field

from tableside_client.client import TableClient
from tableside_client.credential import Credential
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.tls import Tls


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to open a client somewhere else. Names the token and files, holds no client."""

    url: str
    credential: Credential = field(default_factory=Credential)
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES
    tls: Tls = field(default_factory=Tls)

    def open(self) -> TableClient:
        """A client of its own, which the caller closes."""
        return TableClient(
            self.url, credential=self.credential, tls=self.tls, timeout_s=self.timeout_s, retries=self.retries
        )


_shared: dict[tuple[int, Connection], TableClient] = {}
_opening = threading.Lock()


def shared_client(connection: Connection) -> TableClient:
    """The client of this process for the connection. It is kept: the pool of connections survives tasks and jobs.

    A forked child does not use its parent's sockets, so the process is part of what it is kept under.
    """
    place = (os.getpid(), connection)
    with _opening:
        if place not in _shared:
            _shared[place] = connection.open()
        return _shared[place]
