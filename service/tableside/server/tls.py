"""TLS for the server: its certificate, client certificates, and certificate files that are renewed while it runs.

A mounted secret or a certificate agent replaces files without notice, so the server checks them regularly.
"""

import logging
import os
import ssl
from pathlib import Path
from typing import Any, Self

import msgspec
from cryptography import x509
from prometheus_client import CollectorRegistry, Gauge

from ..core import pem

log = logging.getLogger(__name__)


class TlsError(Exception):
    """The certificate, its key or the authorities cannot be used. The message gives the reason in one line."""


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files: the certificate with its chain, the key unless it is in the same file, and the authorities.

    With `authorities`, clients must present a certificate that one of them has issued. `password` decrypts the key.
    """

    certificate: Path
    key: Path | None = None
    authorities: Path | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.certificate})"

    def load(self) -> ssl.SSLContext:
        """Return a context with the current contents of the files. Raise TlsError if they cannot be used."""
        for file in self._files():
            if not os.access(file, os.R_OK):
                raise TlsError(f"{file} is not a readable file")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a password function OpenSSL would prompt at the terminal.
            context.load_cert_chain(self.certificate, self.key, lambda: self.password or "")
        except (OSError, ValueError) as error:
            reason = pem.chain_fault(self.certificate, self.key, error)
            raise TlsError(f"{self.certificate} and its key cannot be used: {reason}") from None
        if self.authorities is not None:
            try:
                context.load_verify_locations(self.authorities)
            except (OSError, ValueError) as error:
                raise TlsError(pem.authorities_fault(self.authorities, error)) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def version(self) -> list[tuple[int, int, int]]:
        """Return a value that changes when a file does."""
        stats = (file.stat() for file in self._files())
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    def _files(self) -> list[Path]:
        return [file for file in (self.certificate, self.key, self.authorities) if file is not None]


class RenewedContext(ssl.SSLContext):
    """A context for a server that starts each connection with the current contents of the files.

    Changed files are loaded into a new context: a context keeps a certificate for each type of key, every authority
    that it was given, and the sessions of the clients that it accepted.
    """

    def __new__(cls, files: TlsFiles, registry: CollectorRegistry) -> Self:
        """Create a context of the server's side."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, files: TlsFiles, registry: CollectorRegistry) -> None:
        """Load the files. Raise TlsError as `TlsFiles.load` does."""
        self._files = files
        self._expiry = Gauge(
            "tableside_certificate_expiry_timestamp_seconds",
            "When the certificate of the service, or one of its chain, expires, in Unix seconds.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._version = files.version()
        self._load()

    def check(self) -> None:
        """Load the files if they have changed. Files that cannot be used are ignored until they change again."""
        try:
            version = self._files.version()
            if version == self._version:
                return
            self._version = version
            self._load()
        except (OSError, TlsError) as error:
            log.error("the certificate was not renewed, the previous one remains in use: %s", error)
        else:
            log.info("the certificate was renewed from %s", self._files.certificate)

    def _load(self) -> None:
        self._current = self._files.load()
        chain = x509.load_pem_x509_certificates(self._files.certificate.read_bytes())
        self._expiry.set(min(one.not_valid_after_utc.timestamp() for one in chain))

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Start a connection. Event loops use this method."""
        return self._current.wrap_bio(*args, **options)
