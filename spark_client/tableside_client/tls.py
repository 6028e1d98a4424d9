"""How a client proves the service's name, and its own: files of certificates, read where the request is made.

Knows the ssl module, and neither HTTP nor Spark.
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

CA_VARIABLE = "TABLESIDE_CA_FILE"
CERTIFICATE_VARIABLE = "TABLESIDE_CERTIFICATE_FILE"
KEY_VARIABLE = "TABLESIDE_KEY_FILE"

_FINAL = {
    "access denied",
    "bad certificate",
    "certificate expired",
    "certificate required",
    "certificate revoked",
    "certificate unknown",
    "handshake failure",
    "insufficient security",
    "protocol version",
    "unknown ca",
    "unsupported certificate",
}
"""The alerts of a service that refuses this client for good, all of them before it reads a request."""


class TlsFileError(ValueError):
    """A file of certificates or of a key that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Names of PEM files, which are looked for where the request is made; only the names travel with a job.

    `ca_file` holds the authorities that the service's certificate may come from, instead of the usual ones.
    `certificate_file` is shown to a service that asks for one; its key is in `key_file`, or in the same file. What is
    not given is taken from `TABLESIDE_CA_FILE`, `TABLESIDE_CERTIFICATE_FILE` and `TABLESIDE_KEY_FILE`, there.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file is the key of a certificate_file, which is not given")

    def refuse_plain(self, url: str) -> None:
        """Raise where files are given, and the address is one whose connections are never encrypted."""
        if self != Tls() and not url.startswith("https://"):
            raise ValueError("ca_file, certificate_file and key_file are for an address that begins with https://")

    def here(self) -> "Tls":
        """The same, with what this process's environment names where nothing is given."""
        own = self.certificate_file is None  # a key belongs to its certificate: both are given, or neither
        return Tls(
            self.ca_file or os.environ.get(CA_VARIABLE) or None,
            self.certificate_file or os.environ.get(CERTIFICATE_VARIABLE) or None,
            (os.environ.get(KEY_VARIABLE) or None) if own else self.key_file,
        )


class FreshContext(ssl.SSLContext):
    """A context whose every new connection uses the files as they are by then.

    Certificates that are renewed in place need no new client. While new files cannot be used, as when the
    certificate is there and its key not yet, connections are made with what was read before.
    """

    def __new__(cls, *_: Any) -> Self:
        """Make the context that HTTP libraries look at; connections are made by the one within."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, tls: Tls, usual: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls
        self._usual = usual
        self._protocols: list[str] = []
        self._seen = _states(tls)
        self._inner = _context(tls, usual)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Keep what the HTTP library wants to speak, for this context and those to come."""
        self._protocols = list(alpn_protocols)
        self._inner.set_alpn_protocols(self._protocols)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """Begin a connection."""
        self._renew()
        return self._inner.wrap_socket(*arguments, **named)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection within another, as through a proxy that is itself asked by TLS."""
        self._renew()
        return self._inner.wrap_bio(*arguments, **named)

    def _renew(self) -> None:
        states = _states(self._tls)
        if states == self._seen:
            return
        try:
            renewed = _context(self._tls, self._usual)
        except TlsFileError:
            return
        renewed.set_alpn_protocols(self._protocols)
        self._inner, self._seen = renewed, states


def refusal(error: BaseException, tls: Tls) -> str | None:
    """Why TLS's checks ended a connection, in words; None where asking again may help, or it was not TLS."""
    match _ssl_error(error):
        case ssl.SSLCertVerificationError() as cause:
            return f"the service's certificate is refused: {cause.verify_message} ({_trusted(tls)})"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE"):
            return "the service answers at this address without TLS"
        case ssl.SSLError(reason=str(reason)) if _alert(reason) in _FINAL:
            return f"the service refuses the connection: {_alert(reason)} ({_shown(tls)})"
    return None


def doubt(tls: Tls) -> str:
    """What to think of where a service ends a connection and says nothing: not all say that they refuse a client."""
    return f"a service that asks for certificates may end connections so: {_shown(tls)}"


def _alert(reason: str) -> str:
    """An alert in words, of OpenSSL's name for it, such as TLSV13_ALERT_CERTIFICATE_REQUIRED."""
    return reason.partition("ALERT_")[2].replace("_", " ").lower()


def _trusted(tls: Tls) -> str:
    return f"ca_file is {tls.ca_file}" if tls.ca_file else "no ca_file is given: the usual authorities are trusted"


def _shown(tls: Tls) -> str:
    return f"certificate_file is {tls.certificate_file}" if tls.certificate_file else "no certificate_file is given"


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _context(tls: Tls, usual: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    context = usual() if tls.ca_file is None else _trusting(tls.ca_file)
    if tls.certificate_file is not None:
        _load(context, tls.certificate_file, tls.key_file)
    return context


def _trusting(ca_file: str) -> ssl.SSLContext:
    _refuse_unreadable("ca_file", ca_file)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise TlsFileError(f"the ca_file {ca_file} cannot be used: {_why(error)}") from None


def _load(context: ssl.SSLContext, certificate_file: str, key_file: str | None) -> None:
    _refuse_unreadable("certificate_file", certificate_file)
    if key_file is not None:
        _refuse_unreadable("key_file", key_file)
    files = f"the certificate_file {certificate_file}" + ("" if key_file is None else f" with the key_file {key_file}")
    try:
        context.load_cert_chain(certificate_file, key_file, password=_refuse_passphrase)
    except ssl.SSLError as error:
        raise TlsFileError(f"{files} cannot be used: {_why(error)}") from None
    except _PassphraseError:
        raise TlsFileError(f"{files} cannot be used: a key with a passphrase is not supported") from None


def _refuse_unreadable(what: str, path: str) -> None:
    """Name the file: the ssl module's own error does not."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise TlsFileError(f"the {what} {path} cannot be read: {error.strerror}") from None


def _why(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words; it has none for what is no PEM file at all."""
    return (error.reason or "no PEM file").replace("_", " ").lower()


class _PassphraseError(Exception):
    """A key asks for its passphrase, which the ssl module would ask the terminal for."""


def _refuse_passphrase() -> str:
    raise _PassphraseError


def _states(tls: Tls) -> tuple[tuple[int, int, int] | None, ...]:
    return tuple(_state(path) for path in (tls.ca_file, tls.certificate_file, tls.key_file) if path is not None)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
