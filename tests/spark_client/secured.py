"""A service with TLS."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.process import free_port
from support.certificates import Signed
from support.running import running


@contextmanager
def secured(folder: Path, pair: Signed, clients_of: Path | None = None, config: Path | None = None) -> Iterator[str]:
    """Run `tableside serve` with a certificate. `clients_of` makes client certificates required. Yield its URL."""
    options = ["--ssl-certfile", str(pair.certificate), "--ssl-keyfile", str(pair.key)]
    options += [] if clients_of is None else ["--ssl-ca-certs", str(clients_of)]
    with running(folder, config, probes_port=free_port(), options=options) as service:
        yield service.url
