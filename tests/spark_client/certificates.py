"""Certificates for tests: an authority, and what it signs for a service on loopback and for clients."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
PASSPHRASE = b"not supported"


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; its own is the file `ca`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        signed = _certificate(self._name, self._name, self._key, DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def pair(
        self, name: str, address: str | None = "127.0.0.1", lasts: timedelta = DAY, *, encrypted: bool = False
    ) -> Pair:
        """Sign a certificate for an address, or for a client that has none; a negative `lasts` is over already."""
        key = ec.generate_private_key(ec.SECP256R1())
        request = _certificate(_named(name), self._name, key, lasts)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
            request = request.add_extension(names, critical=False)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        pair.certificate.write_bytes(_pem(request.sign(self._key, hashes.SHA256())))
        how = serialization.BestAvailableEncryption(PASSPHRASE) if encrypted else serialization.NoEncryption()
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        pair.key.write_bytes(key.private_bytes(encoding, form, how))
        return pair


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - 2 * DAY, now + lasts
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
