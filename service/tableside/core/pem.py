"""Say what is wrong with PEM files. OpenSSL's own reason for most of these faults is `PEM lib`."""

import re
import ssl
from pathlib import Path

_LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")


def chain_fault(certificate: str | Path, key: str | Path | None, error: Exception) -> str:
    """Return why `load_cert_chain` has failed with an error. Without a `key`, it is in the file of the certificate."""
    key = key or certificate
    try:
        fault = _missing(certificate, "CERTIFICATE") or _missing(key, "PRIVATE KEY")
        encrypted = b"ENCRYPTED" in Path(key).read_bytes()
    except OSError as unreadable:
        return f"{unreadable.filename}: {unreadable.strerror}"
    if fault is None and isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        fault = "the key does not belong to the certificate"
    if fault is None and encrypted:
        fault = f"the key in {key} is encrypted, and its password is missing or wrong"
    return fault or f"a block is damaged ({error})"


def authorities_fault(file: str | Path, error: Exception) -> str:
    """Return why `load_verify_locations` has failed with an error."""
    try:
        return _missing(file, "CERTIFICATE") or f"a certificate in {file} is damaged ({error})"
    except OSError as unreadable:
        return f"{file}: {unreadable.strerror}"


def _missing(file: str | Path, wanted: str) -> str | None:
    """Return a text if a file has no PEM block whose label ends with `wanted`. Raise OSError if it is unreadable."""
    labels = [label.decode() for label in _LABEL.findall(Path(file).read_bytes())]
    if any(label.endswith(wanted) for label in labels):
        return None
    found = f"only {', '.join(dict.fromkeys(labels)).lower()}" if labels else "it is not in PEM format"
    return f"{file} contains no {wanted.lower()}: {found}"
