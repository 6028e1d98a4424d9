"""Services with TLS, and the certificates of both sides."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.process import free_port
from support.certificates import Authority, Signed
from support.running import running


@contextmanager
def secured(folder: Path, pair: Signed, clients_of: Path | None = None, config: Path | None = None) -> Iterator[str]:
    """Run `tableside serve` with a certificate. `clients_of` makes client certificates required. Yield its URL."""
    options = ["--ssl-certfile", str(pair.certificate), "--ssl-keyfile", str(pair.key)]
    options += [] if clients_of is None else ["--ssl-ca-certs", str(clients_of)]
    with running(folder, config, probes_port=free_port(), options=options) as service:
        yield service.url


@dataclass(frozen=True)
class Site:
    """An authority, its certificates for both sides, and the URLs of a service without and with client certificates."""

    authority: Authority
    service: Signed
    client: Signed
    url: str
    mutual: str

    def files(self, pair: Signed | None = None) -> dict[str, Any]:
        """Return the options of a client that trusts the service, and may have a certificate."""
        found = {"ca_file": str(self.authority.certificate)}
        if pair is not None:
            found |= {"certificate_file": str(pair.certificate), "key_file": str(pair.key)}
        return found


@contextmanager
def secured_site(folder: Path) -> Iterator[Site]:
    """Run both services with certificates of a new authority."""
    authority = Authority(folder)
    own = authority.sign("service", ("127.0.0.1",))
    with secured(folder / "plain", own) as url, secured(folder / "mutual", own, authority.certificate) as mutual:
        yield Site(authority, own, authority.sign("client", ()), url, mutual)


@contextmanager
def saying_why(site: Site) -> Iterator[str]:
    """Run a server that requires certificates, and sends a TLS alert about the client's before it closes.

    The client may miss the alert, since the connection is reset. In that case it retries.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=site.authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(site.service.certificate, site.service.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            while True:
                connection, _ = listening.accept()
                with connection:
                    if connection.recv(1, socket.MSG_PEEK) == b"!":
                        return
                    with suppress(OSError):
                        context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=refuse)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        with socket.create_connection(listening.getsockname()) as last:
            last.sendall(b"!")
        thread.join()
