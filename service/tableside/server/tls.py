"""TLS for the server: whose certificate it shows, whom it lets connect, and files that are renewed while it serves.

What replaces the files (a secret that is mounted, a renewing agent) tells nobody; so they are looked at now and then.
"""

import logging
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)


class TlsError(Exception):
    """The certificate, its key or the authorities cannot be used, for the reason that the message gives in one line."""


class Tls(msgspec.Struct, frozen=True):
    """PEM files: the certificate with what leads to its authority, its key if that is in a file of its own, and the
    authorities whose certificates clients must show, if they must. `password` is the key's.
    """

    certificate: Path
    key: Path | None = None
    authorities: Path | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Tls({self.certificate})"

    def options(self) -> dict[str, Any]:
        """Return uvicorn's options that say the same."""
        return {
            "ssl_certfile": str(self.certificate),
            "ssl_keyfile": None if self.key is None else str(self.key),
            "ssl_keyfile_password": self.password,
            "ssl_ca_certs": None if self.authorities is None else str(self.authorities),
            "ssl_cert_reqs": ssl.CERT_NONE if self.authorities is None else ssl.CERT_REQUIRED,
            "ssl_ciphers": None,  # those of before were of TLS 1.0, without authentication among them
        }

    def check(self) -> None:
        """Raise TlsError if the files are not there, or do not belong together."""
        self.context()

    def context(self) -> ssl.SSLContext:
        """Return what has connections see what the files hold now. Raise TlsError if that cannot be used."""
        for file in self._files():
            if not os.access(file, os.R_OK):
                raise TlsError(f"{file} is not a file that can be read")
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a function it would ask at the terminal.
            made.load_cert_chain(self.certificate, self.key, lambda: self.password or "")
        except (OSError, ValueError) as error:
            raise TlsError(f"{self.certificate} and its key cannot be used: {_reason(error)}") from None
        if self.authorities is not None:
            try:
                made.load_verify_locations(self.authorities)
            except (OSError, ValueError) as error:
                raise TlsError(f"{self.authorities} holds no certificates: {_reason(error)}") from None
            made.verify_mode = ssl.CERT_REQUIRED
        return made

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when one of the files does."""
        found = (file.stat() for file in self._files())
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _files(self) -> Iterator[Path]:
        yield from (file for file in (self.certificate, self.key, self.authorities) if file is not None)


class Renewal:
    """Has a server's connections see files that have changed. `context` is for the server.

    A context keeps a certificate for each kind of key, every authority that it was ever given, and sessions of those
    whom it let in. So what has changed is not loaded into the one of before: connections are given another.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = tls.state()
        self.context = _Now(ssl.PROTOCOL_TLS_SERVER)
        self.context.now = tls.context()

    def look(self) -> None:
        """Load the files if they have changed since; those that cannot be used are left until they change again."""
        try:
            state = self._tls.state()
            if state == self._seen:
                return
            self._seen = state
            self.context.now = self._tls.context()
        except (OSError, TlsError) as error:
            log.error("the certificate was not renewed, the one before is still shown: %s", error)
        else:
            log.info("the certificate is renewed from %s", self._tls.certificate)


class _Now(ssl.SSLContext):
    """Has every connection that begins be one of the context of now."""

    now: ssl.SSLContext

    def wrap_bio(self, *given: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection; it is how event loops do that."""
        return self.now.wrap_bio(*given, **options)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
