"""Certificates of a cluster's own authority. Pure except for the keys' randomness.

A certificate names its holder by a URI, ``spiffe://CLUSTER/ROLE/NAME``. ROLE is control, gateway or
agent. An agent's NAME is its instance. Keys are P-256.

Source: RFC 5280, and SPIFFE for the URI's form.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerName

VALID_FOR = timedelta(days=36500)
CLOCK_SKEW = timedelta(hours=1)


def self_signed(name: str, now: float) -> tuple[bytes, bytes]:
    """A new P-256 key for `name`: its certificate, valid from `now` on, and the key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.fromtimestamp(now, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - CLOCK_SKEW)
        .not_valid_after(start + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(pem), private


LEAF_S = 30 * 86400.0
AUTHORITY_S = 3650 * 86400.0
CLOCK_SKEW_S = 3600.0
RENEWED_AT = 2 / 3  # of its time
PEM = serialization.Encoding.PEM
CLUSTER = re.compile(r"CN=hostelry (\S+) authority [0-9a-f]{8}")


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class CertificateFacts(msgspec.Struct, frozen=True):
    """The contents of a certificate. Times are in seconds since the epoch."""

    subject: str
    uris: tuple[str, ...]
    issuer: str
    serial: int
    not_before: float
    not_after: float
    fingerprint: str

    def renew_at(self) -> float:
        """When it is to be replaced: once two thirds of its time are over."""
        start = self.not_before + CLOCK_SKEW_S
        return start + (self.not_after - start) * RENEWED_AT


def new_key() -> bytes:
    """A new private key, PEM."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def new_authority(cluster: str, now: float, valid_s: float = AUTHORITY_S) -> Pair:
    """A new authority of the cluster: its certificate, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # Two authorities trusted at a time differ in name, too.
    name = _name(f"hostelry {cluster} authority {identity.digest.hex()[:8]}")
    builder = _builder(name, name, key.public_key(), now, valid_s)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identity, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(PEM), _private_pem(key))


def signing_request(key: bytes) -> bytes:
    """The request (PKCS#10, PEM) that proves possession of `key`. The issuer chooses the name."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name("hostelry"))
    return builder.sign(_signing_key(key), hashes.SHA256()).public_bytes(PEM)


def issue(
    authority: Pair, request: bytes, peer: PeerName, now: float, valid_s: float = LEAF_S
) -> bytes:
    """A certificate (PEM) for the key of `request`, in the name of `peer`.

    It ends no later than the authority's certificate. Raises ValueError if the request is invalid,
    is not signed by its key, or has a key that is not P-256.
    """
    try:
        asked = x509.load_pem_x509_csr(request)
    except ValueError:
        raise ValueError("the signing request is no PKCS#10 in PEM") from None
    public = asked.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != "secp256r1":
        raise ValueError("the signing request's key is none of the curve P-256")
    if not asked.is_signature_valid:
        raise ValueError("the signing request is not signed by its own key")
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = _signing_key(authority.key)
    left_s = issuer.not_valid_after_utc.timestamp() - now
    builder = _builder(
        _name(f"{peer.role.value} {peer.name}"[:64]),
        issuer.subject,
        public,
        now,
        min(valid_s, left_s),
    )
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(peer.uri)])
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(signer, critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    return certificate.public_bytes(PEM)


def read_facts(certificate: bytes) -> CertificateFacts:
    """Read the first certificate of a PEM. Raises ValueError without a certificate."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = tuple(names.get_values_for_type(x509.UniformResourceIdentifier))
    except x509.ExtensionNotFound:
        uris = ()
    except ValueError as error:
        raise ValueError(f"no certificate in PEM: {error}") from None
    return CertificateFacts(
        subject=found.subject.rfc4514_string(),
        uris=uris,
        issuer=found.issuer.rfc4514_string(),
        serial=found.serial_number,
        not_before=found.not_valid_before_utc.timestamp(),
        not_after=found.not_valid_after_utc.timestamp(),
        fingerprint=hashlib.sha256(found.public_bytes(serialization.Encoding.DER)).hexdigest(),
    )


def get_cluster(authority: bytes) -> str:
    """Return the cluster of an authority (PEM) of `new_authority`, or "" for another's."""
    found = CLUSTER.fullmatch(read_facts(authority).subject)
    return found[1] if found else ""


def check_pair(pair: Pair, trusted: bytes, now: float) -> PeerName:
    """The holder of a certificate (its chain behind it) that peers who trust `trusted` accept.

    Raises TerminalError with the fault: unreadable, of another key, not valid now, not signed by an
    authority in `trusted`, or without a name.
    """
    try:
        chain = x509.load_pem_x509_certificates(pair.certificate)
        authorities = x509.load_pem_x509_certificates(trusted)
        read = read_facts(pair.certificate)
    except ValueError as error:
        raise TerminalError(f"a certificate cannot be read: {error}") from None
    if _read_public(pair.key) != _public_bytes(chain[0]):
        raise TerminalError("the key is not the certificate's: they are not of one pair")
    if not read.not_before <= now < read.not_after:
        valid = f"from {_date(read.not_before)} to {_date(read.not_after)}"
        raise TerminalError(f"the certificate is valid {valid}, and now is {_date(now)}")
    if not _leads_to(chain, authorities):
        names = "; ".join(it.subject.rfc4514_string() for it in authorities)
        raise TerminalError(f"the certificate is signed by {read.issuer}, none of {names}")
    try:
        return PeerName.find_in(read.uris)
    except ValueError as error:
        raise TerminalError(str(error)) from None


def bundle(certificates: Sequence[bytes]) -> bytes:
    """The certificates of several PEMs as one, each once, in their order."""
    each = [it for pem in certificates for it in x509.load_pem_x509_certificates(pem)]
    return b"".join(dict.fromkeys(it.public_bytes(PEM) for it in each))


def split(trusted: bytes) -> list[bytes]:
    """Split a PEM into one PEM per certificate. Raises ValueError without a certificate."""
    return [it.public_bytes(PEM) for it in x509.load_pem_x509_certificates(trusted)]


def still_valid(trusted: bytes, now: float) -> bytes:
    """The certificates of a PEM that have not ended."""
    return b"".join(it for it in split(trusted) if read_facts(it).not_after > now)


def _leads_to(chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]) -> bool:
    """Whether the chain's first certificate is signed, by way of the others, by an authority."""
    current, rest = chain[0], list(chain[1:])
    for _ in range(len(chain)):
        if any(_signed_by(current, it) for it in authorities):
            return True
        above = next((it for it in rest if _signed_by(current, it)), None)
        if above is None:
            return False
        rest.remove(above)
        current = above
    return False


def _signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read_public(key: bytes) -> bytes:
    try:
        private: PrivateKeyTypes = load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise TerminalError(f"the key cannot be read, which is unencrypted PEM: {error}") from None
    return private.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _public_bytes(certificate: x509.Certificate) -> bytes:
    public = certificate.public_key()
    return public.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _signing_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    private = load_pem_private_key(key, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is none of an elliptic curve")  # noqa: TRY004 - a bad value
    return private


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(PEM, form, none)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    now: float,
    valid_s: float,
) -> x509.CertificateBuilder:
    start = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(seconds=CLOCK_SKEW_S))
        .not_valid_after(start + timedelta(seconds=valid_s))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common[:64])])


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
