"""`Connection` describes a client for other processes, each of which shares one client."""

import os
import threading
from dataclasses import dataclass, field

from tableside_client.blocking import Client
from tableside_client.credential import Credential
from tableside_client.retries import DEFAULT_RETRIES, Retries
from tableside_client.tls import Tls


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to open a client in another process. A job contains it in serialized form."""

    url: str
    credential: Credential = field(default_factory=Credential)
    timeout_s: float = 30.0
    retries: Retries = DEFAULT_RETRIES
    tls: Tls = field(default_factory=Tls)

    def open(self) -> Client:
        """Open a new client. The caller closes it."""
        return Client(
            self.url,
            token=self.credential.literal,
            token_file=self.credential.path,
            ca_file=self.tls.ca_file,
            certificate_file=self.tls.certificate_file,
            key_file=self.tls.key_file,
            timeout_s=self.timeout_s,
            retries=self.retries,
        )


_shared: dict[tuple[int, Connection], Client] = {}
_shared_lock = threading.Lock()


def shared_client(connection: Connection) -> Client:
    """Return this process's client for a connection, opening it at first use.

    The client is never closed, so that its connection pool is reused across tasks and jobs. The process id is part of
    the key, because a forked child must not use its parent's sockets.
    """
    cache_key = (os.getpid(), connection)
    with _shared_lock:
        if cache_key not in _shared:
            _shared[cache_key] = connection.open()
        return _shared[cache_key]
