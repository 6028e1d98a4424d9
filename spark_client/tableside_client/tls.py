"""TLS: certificate files, an SSL context that reloads them, and messages for failed handshakes."""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

CA_VARIABLE = "TABLESIDE_CA_FILE"
CERTIFICATE_VARIABLE = "TABLESIDE_CERTIFICATE_FILE"
KEY_VARIABLE = "TABLESIDE_KEY_FILE"

_PERMANENT_ALERTS = {
    "access denied", "bad certificate", "certificate expired", "certificate required", "certificate revoked",
    "certificate unknown", "handshake failure", "insufficient security", "protocol version", "unknown ca",
    "unsupported certificate",
}  # fmt: skip
"""TLS alerts that reject this client permanently. The service sends them before it reads a request."""


class TlsFileError(ValueError):
    """A certificate or key file that cannot be read or used. The message names the file."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files, as for `Client`, which are read in the process that sends the requests."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file requires certificate_file")

    def require_https(self, url: str) -> None:
        """Raise `ValueError` if there are files for an address that is not `https://`."""
        if self != Tls() and not url.startswith("https://"):
            raise ValueError("ca_file, certificate_file and key_file require an https:// address")

    def with_environment(self) -> "Tls":
        """Return a copy with the defaults from this process's environment."""
        use_default_key = self.certificate_file is None  # certificate and key come from the same source
        return Tls(
            self.ca_file or os.environ.get(CA_VARIABLE) or None,
            self.certificate_file or os.environ.get(CERTIFICATE_VARIABLE) or None,
            (os.environ.get(KEY_VARIABLE) or None) if use_default_key else self.key_file,
        )


class ReloadingContext(ssl.SSLContext):
    """An SSL context that reloads changed files before each new connection, if they can be used."""

    def __new__(cls, *_: Any) -> Self:
        """Create the context that the HTTP library sees. Connections use the inner context."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, tls: Tls, default: Callable[[], ssl.SSLContext]) -> None:
        self._tls, self._default = tls, default
        self._protocols: list[str] = []
        self._loaded = _fingerprints(tls)
        self._inner = _context(tls, default)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Store the HTTP library's ALPN protocols for this inner context and later ones."""
        self._protocols = list(alpn_protocols)
        self._inner.set_alpn_protocols(self._protocols)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Start a connection."""
        self._reload()
        return self._inner.wrap_socket(*arguments, **options)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Start a connection inside another one, for example through an HTTPS proxy."""
        self._reload()
        return self._inner.wrap_bio(*arguments, **options)

    def _reload(self) -> None:
        fingerprints = _fingerprints(self._tls)
        if fingerprints == self._loaded:
            return
        try:
            reloaded = _context(self._tls, self._default)
        except TlsFileError:
            return
        reloaded.set_alpn_protocols(self._protocols)
        self._inner, self._loaded = reloaded, fingerprints


def rejection_reason(error: BaseException, tls: Tls) -> str | None:
    """Describe a permanent TLS failure. Returns None if a retry may help, or the failure is not from TLS."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    trusted = (
        f"ca_file is {tls.ca_file}" if tls.ca_file else "no ca_file is given: the system's authorities are trusted"
    )
    match found:
        case ssl.SSLCertVerificationError() as cause:
            return f"the service's certificate is refused: {cause.verify_message} ({trusted})"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE"):
            return "the service answers at this address without TLS"
        case ssl.SSLError(reason=str(reason)) if _alert(reason) in _PERMANENT_ALERTS:
            return f"the service refuses the connection: {_alert(reason)} ({_certificate_text(tls)})"
    return None


def disconnect_hint(tls: Tls) -> str:
    """A hint for a connection that the service closed without an alert: some services reject a client that way."""
    return f"a service that requires client certificates may close connections like this: {_certificate_text(tls)}"


def _alert(reason: str) -> str:
    """The words of an alert in an OpenSSL name such as TLSV13_ALERT_CERTIFICATE_REQUIRED."""
    return reason.partition("ALERT_")[2].replace("_", " ").lower()


def _certificate_text(tls: Tls) -> str:
    return f"certificate_file is {tls.certificate_file}" if tls.certificate_file else "no certificate_file is given"


def _context(tls: Tls, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    if tls.ca_file is None:
        context = default()
    else:
        _require_readable("ca_file", tls.ca_file)
        try:
            context = ssl.create_default_context(cafile=tls.ca_file)
        except ssl.SSLError as error:
            raise TlsFileError(f"the ca_file {tls.ca_file} cannot be used: {_reason(error)}") from None
    if tls.certificate_file is not None:
        files = f"the certificate_file {tls.certificate_file}"
        _require_readable("certificate_file", tls.certificate_file)
        if tls.key_file is not None:
            files += f" with the key_file {tls.key_file}"
            _require_readable("key_file", tls.key_file)
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=_reject_passphrase)
        except ssl.SSLError as error:
            raise TlsFileError(f"{files} cannot be used: {_reason(error)}") from None
        except _PassphraseError:
            raise TlsFileError(f"{files} cannot be used: a key with a passphrase is not supported") from None
    return context


def _require_readable(name: str, path: str) -> None:
    """Raise an error that names the file, unlike the error of the ssl module."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsFileError(f"the {name} {path} cannot be read: {error.strerror}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "not a PEM file, or not of this kind").replace("_", " ").lower()


class _PassphraseError(Exception):
    """The key has a passphrase. Without this error, the ssl module would ask for it on the terminal."""


def _reject_passphrase() -> str:
    raise _PassphraseError


def _fingerprints(tls: Tls) -> tuple[tuple[int, int, int] | None, ...]:
    return tuple(_fingerprint(path) for path in (tls.ca_file, tls.certificate_file, tls.key_file) if path is not None)


def _fingerprint(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
