"""An operator's own certificate authority, and certificates of hosts that it signs."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hostelry.base.clock import SystemClock

PEM = serialization.Encoding.PEM
DAY = timedelta(days=1)


class HostAuthority:
    """Signs certificates and writes them into `folder`. Its own certificate is in `ca`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an operator")])
        own = self._builder(self._name, self._key, 30).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.ca = folder / "authority.pem"
        self.ca.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def pair(
        self, name: str, *hosts: str, days: int = 10, password: bytes | None = None
    ) -> tuple[Path, Path]:
        """The files NAME of a certificate for `hosts`, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, days)
        if hosts:
            names = x509.SubjectAlternativeName([_general(it) for it in hosts])
            builder = builder.add_extension(names, critical=False)
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        files[1].write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption))
        return files

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.fromtimestamp(SystemClock().now(), UTC)
        ends_at = now + days * DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, ends_at) - DAY)
            .not_valid_after(ends_at)
        )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
