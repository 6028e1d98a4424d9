"""A test certificate authority and the certificates that it signs."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates. `certificate` is the PEM file of the authority's own certificate, named after it."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = _builder(self._name, self._name, self._key.public_key(), datetime.now(UTC) + DAY)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signed = own.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        name: str,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        *,
        expired: bool = False,
        password: str | None = None,
        kind: str = "EC",
    ) -> Signed:
        """Return a certificate for these hosts, or a client certificate if there are none, in files named `name`.

        An existing certificate with that name is replaced.
        """
        key = rsa.generate_private_key(65537, 2048) if kind == "RSA" else ec.generate_private_key(ec.SECP256R1())
        until = datetime.now(UTC) + (-DAY / 24 if expired else DAY)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self._name, key.public_key(), until)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)  # Python 3.13 and later require it
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(_names(hosts))), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        files = Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption(),
            )
        )
        return files

    def trusting(self, client: Signed | None = None) -> ssl.SSLContext:
        """Return an SSL context for a client that trusts this authority and may present its own certificate."""
        context = ssl.create_default_context(cafile=self.certificate)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, until: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(until - 2 * DAY).not_valid_after(until)


def _names(hosts: tuple[str, ...]) -> Iterator[x509.GeneralName]:
    for host in hosts:
        try:
            yield x509.IPAddress(ip_address(host))
        except ValueError:
            yield x509.DNSName(host)
