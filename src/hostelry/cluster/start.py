"""A host's part in a cluster, as it starts: its address and ports, and its certificates."""

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.peers import PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.targets import CONTROL, GATEWAY, GATEWAY_PEER, JOBS, S3
from hostelry.home.fleet_option import RAY
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.ports import is_loopback, reachable_host
from hostelry.home.up_options import UpOptions

DEFAULT_PORT = 7443
LOOPBACK = "127.0.0.1"
JOIN_AGAIN = "let this host join again, by --join URL with a new token of `hostelry join-token`"


def check_cluster(options: UpOptions) -> None:
    """Raise TerminalError for a cluster's address or files that cannot be."""
    host, port = options.cluster_host, options.cluster_port
    if host is None:
        for flag, value in (
            ("--cluster-port", port),
            ("--tls-ca", options.tls_ca),
            ("--tls-cert", options.tls_cert),
            ("--tls-key", options.tls_key),
        ):
            if value is not None:
                raise UsageError(f"{flag} needs --cluster-host: it is for other hosts alone")
        return
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise UsageError(
            f"--cluster-host {host}: expected the IP address at which other hosts reach this one"
        ) from None
    if address.is_unspecified:
        raise UsageError(
            f"--cluster-host {host} is no address that other hosts can connect to: name this "
            "host's own"
        )
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(f"--cluster-port {port}: a port is a number from 1 to 65535")
    if options.fleet == RAY:
        _check_for_nodes(options, is_one_machine=address.is_loopback)


def _check_for_nodes(options: UpOptions, *, is_one_machine: bool) -> None:
    """Raise TerminalError for what instances on Ray's nodes could not reach, or not be issued."""
    if (options.tls_ca, options.tls_cert, options.tls_key) != (None, None, None):
        raise UsageError(
            "--fleet ray with --tls-ca, --tls-cert and --tls-key: each instance has a certificate "
            "of its own there, which hostelry's own authority alone can issue; leave them out"
        )
    if is_one_machine:
        return
    if options.insecure_no_auth:
        raise UsageError(
            f"--insecure-no-auth with --fleet ray and --cluster-host {options.cluster_host} would "
            "let in every user of every node; it is allowed on one machine only"
        )
    store = urlsplit(options.s3_endpoint or "").hostname
    if store is not None and is_loopback(store):
        raise UsageError(
            f"--s3-endpoint {options.s3_endpoint} is on this machine's loopback, where instances "
            f"on other machines, which --cluster-host {options.cluster_host} is for, cannot reach "
            "it: name the address at which they do"
        )


def add_host_address(config: UpConfig, options: UpOptions, peer_port: int) -> UpConfig:
    """The configuration with this host's part. `peer_port` is for other hosts' gateways."""
    if options.cluster_host is None:
        return config
    with_address = replace(
        config,
        cluster_host=options.cluster_host,
        cluster_port=options.cluster_port or config.cluster_port or DEFAULT_PORT,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        peer_port=peer_port,
        host_id=config.host_id or secrets.token_hex(8),
    )
    peers = with_address.control_address.replace("://control@", "://gateway-peer@")
    return replace(with_address, peer_address=peers)


def service_addresses(config: UpConfig) -> Mapping[str, tuple[str, int]]:
    """Host and port of this host's services by their names. Port 0 without the service."""
    names = {GATEWAY_PEER: (LOOPBACK, config.peer_port)}
    if not config.is_gateway_host:
        names |= {CONTROL: (LOOPBACK, config.control_port), JOBS: (LOOPBACK, config.jobs_port)}
    clients = reachable_host(config.host)
    if not config.is_control_host:
        names |= {GATEWAY: (clients, config.gateway_port)}
        if config.has_own_s3 and not config.is_gateway_host:
            names |= {S3: (clients, config.s3_port)}
    return names


def prepare_certificates(
    home: Home, config: UpConfig, credentials: Credentials, role: PeerRole, now: float
) -> None:
    """Have this host's certificates in its home. Raises TerminalError with the fault.

    A host of control makes the authority at first need, any other got its own by joining.
    """
    if config.cluster_host is None:
        return
    # Imported where a cluster is used: a platform of one machine needs none of it.
    from hostelry.cluster.host_files import HostFiles, find_operator_files

    files = HostFiles(TlsFolder(home.tls), credentials.cluster_id)
    given = find_operator_files(config.tls_ca, config.tls_cert, config.tls_key)
    if given is not None:
        name = files.take(given, now)
        if name.role is not role:
            raise TerminalError(
                f"{given.certificate} names {name.uri}; this host's is "
                f"spiffe://{name.cluster}/{role.value}/NAME"
            )
    elif role is PeerRole.CONTROL:
        if config.is_control_host and files.authority() is None:
            raise TerminalError(f"{home.tls} has not the platform's authority: {JOIN_AGAIN}")
        files.make(role, config.host_name or config.cluster_host, now)
    elif files.own(now) is None:
        raise TerminalError(f"{home.tls} has no certificate that is valid now: {JOIN_AGAIN}")
