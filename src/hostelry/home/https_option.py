"""Options --https-cert, --https-key and --https-ca: TLS for clients, checked as `up` starts."""

import contextlib
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import write_whole
from hostelry.base.https import ServerCertificate, server_context
from hostelry.home.home import Home, UpConfig
from hostelry.home.ports import is_loopback, reachable_host
from hostelry.home.up_options import UpOptions

MAX_STEPS = 20  # of a handshake, which takes four


def find_certificate(config: UpConfig) -> ServerCertificate | None:
    """The certificate that the ports for clients present, or None for plain HTTP."""
    if config.https_cert is None or config.https_key is None:
        return None
    return ServerCertificate(Path(config.https_cert), Path(config.https_key))


def add_https(home: Home, config: UpConfig, options: UpOptions) -> UpConfig:
    """The configuration with the options' certificate, after a test client has accepted it.

    Raises TerminalError with the option and the fault.
    """
    plain = replace(config, https_cert=None, https_key=None, https_ca=None, https_host="")
    if options.https_cert is None and options.https_key is None:
        if options.https_ca is not None:
            raise UsageError("--https-ca is what signed --https-cert, which is not given")
        return plain
    if options.https_cert is None or options.https_key is None:
        raise UsageError("--https-cert and --https-key are a pair: give both")
    certificate, key = Path(options.https_cert).absolute(), Path(options.https_key).absolute()
    try:
        context = server_context(certificate, key)
    except TerminalError as error:
        raise UsageError(f"--https-cert, --https-key: {error}") from None
    host = choose_url_host(read_names(certificate), config.host)
    if host is None:
        raise UsageError(
            f"--https-cert {certificate} names no host in its subject alternative names, which "
            "clients compare with the address that they call"
        )
    trusted = trusted_by_clients(options.https_ca)
    refused = why_refused(context, trusted, host)
    if refused is not None:
        hint = "" if options.https_ca else "; --https-ca FILE names an authority of your own"
        raise UsageError(f"--https-cert {certificate} is refused by clients: {refused}{hint}")
    bundle = None
    if options.https_ca is not None:
        bundle = str(home.https_ca)
        write_whole(home.https_ca, trusted.encode(), durable=False)
    return replace(
        plain, https_cert=str(certificate), https_key=str(key), https_ca=bundle, https_host=host
    )


def read_names(certificate: Path) -> list[str]:
    """The hosts in the certificate, DNS names first. Raises TerminalError."""
    # Imported where TLS is used: `up` without it needs none of it.
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"--https-cert {certificate} cannot be read: {error}") from None
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *(str(it) for it in addresses)]


def choose_url_host(names: Sequence[str], listening: str) -> str | None:
    """The name in URLs of a platform that listens on the address `listening`.

    That address, or localhost for loopback, if the certificate has it. Otherwise the certificate's
    first name without a wildcard, or None.
    """
    own = reachable_host(listening)
    wanted = [own, "localhost"] if is_loopback(own) else [own]
    hosts = [it for it in names if not it.startswith("*")]
    return next((it for it in [*wanted, *hosts] if it in hosts), None)


def trusted_by_clients(authority: str | None) -> str:
    """PEM of the authorities that boto3 trusts, or of this machine's and the operator's own."""
    if authority is None:
        # Imported where TLS is used, as above.
        from botocore.httpsession import get_cert_path

        return Path(get_cert_path(True)).read_text(encoding="utf-8")
    try:
        own = Path(authority).read_text(encoding="utf-8")
        ssl.create_default_context(cadata=own)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(f"--https-ca {authority} is no certificate, PEM: {error}") from None
    return f"{system_certificates().decode('utf-8', 'replace')}\n{own}"


def read_authorities(config: UpConfig) -> bytes:
    """PEM of the authorities that clients of the platform trust."""
    return Path(config.https_ca).read_bytes() if config.https_ca else system_certificates()


def system_certificates() -> bytes:
    """The certificates that this machine trusts, as PEM: of OpenSSL's usual place, or certifi's."""
    places = [ssl.get_default_verify_paths().cafile]
    with contextlib.suppress(ImportError):
        import certifi

        places.append(certifi.where())
    for place in places:
        if place and Path(place).is_file():
            return Path(place).read_bytes().rstrip() + b"\n"
    return b""


def why_refused(server: ssl.SSLContext, trusted: str, host: str) -> str | None:
    """Why a client that trusts `trusted` and calls `host` ends the handshake, or None."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=trusted)
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for step in range(MAX_STEPS):
            try:
                sides[step % 2].do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        return f"{error.verify_message} (as {_format_host(host)})"
    except ssl.SSLError as error:
        return str(error)
    return None


def _format_host(host: str) -> str:
    try:
        return f"address {ipaddress.ip_address(host)}"
    except ValueError:
        return f"host {host}"
