"""A certificate authority for one run of a program. It certifies any host.

Its key stays in the memory of this process, and only the started program trusts it.
"""

import contextlib
import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.utils import CryptographyDeprecationWarning

VALID_FOR = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)
NAME = "hostelry exec"
MAX_HOSTS = 1000
PEM = serialization.Encoding.PEM
END_LINE = b"-----END CERTIFICATE-----\n"
JAVA_PASSWORD = "changeit"  # Java's default. The file contains no secret


class RunAuthority:
    """Signs certificates at `now`. `folder` (private) holds the files that ssl needs."""

    def __init__(self, folder: Path, now: float) -> None:
        self._folder = folder
        self._start = datetime.fromtimestamp(now, UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
        self._leaf = ec.generate_private_key(ec.SECP256R1())
        self._contexts: dict[str, ssl.SSLContext] = {}
        own = self._builder(self._subject, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = own.sign(self._key, hashes.SHA256()).public_bytes(PEM)

    def server_context(self) -> ssl.SSLContext:
        """A TLS context that acts as whichever host a client asks for."""
        context = self._context("unnamed.invalid")

        def choose(connection: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
            if host:
                connection.context = self._context(host)

        context.sni_callback = choose
        return context

    def _context(self, host: str) -> ssl.SSLContext:
        found = self._contexts.get(host)
        if found is None:
            if len(self._contexts) >= MAX_HOSTS:
                self._contexts.clear()
            found = self._contexts[host] = self._made(host)
        return found

    def _made(self, host: str) -> ssl.SSLContext:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
        certificate = (
            self._builder(subject, self._leaf)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = self._leaf.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / "host.pem"
        path.write_bytes(certificate.public_bytes(PEM) + private)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(path)
        finally:
            path.unlink()
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start - CLOCK_SKEW)
            .not_valid_after(self._start + VALID_FOR)
        )


def java_truststore(trusted: bytes) -> bytes:
    """Convert the certificates of a PEM file to PKCS #12, which Java reads with `JAVA_PASSWORD`.

    Unreadable certificates are left out.
    """
    found = []
    for number, block in enumerate(trusted.split(END_LINE)[:-1]):
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # from old authorities
            certificate = x509.load_pem_x509_certificate(block + END_LINE)
            found.append(pkcs12.PKCS12Certificate(certificate, str(number).encode()))
    locked = serialization.BestAvailableEncryption(JAVA_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(found, locked)
