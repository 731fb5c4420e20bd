"""`hostelry gateway`: gateways on a further host of a platform."""

from typing import Annotated

import typer

from hostelry.base.logging import TEXT
from hostelry.base.peer_name import PeerRole
from hostelry.cli.home_option import HomeOption, JsonOption, home_at
from hostelry.cli.joining import HostNameOption, JoinOption, TokenOption, joined
from hostelry.cli.up import up_detached, up_here
from hostelry.cli.up_flags import (
    ClusterHostOption,
    ClusterPortOption,
    DetachOption,
    DrainOption,
    HoldEachOption,
    HoldMbOption,
    HoldRequestsOption,
    HttpsCaOption,
    HttpsCertOption,
    HttpsKeyOption,
    LogFormatOption,
    NoMirrorProcessOption,
    PortOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
    WorkersOption,
)
from hostelry.home.up_options import UpOptions


def gateway(  # noqa: PLR0913 - one parameter an option of the command
    home: HomeOption = None,
    join_url: JoinOption = None,
    token: TokenOption = None,
    host_name: HostNameOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: PortOption = None,
    gateway_workers: WorkersOption = None,
    drain_s: DrainOption = 0.0,
    hold_requests: HoldRequestsOption = 4096,
    hold_requests_each: HoldEachOption = 1024,
    hold_mb: HoldMbOption = 256.0,
    no_mirror_process: NoMirrorProcessOption = False,
    log_format: LogFormatOption = TEXT,
    cluster_host: ClusterHostOption = None,
    cluster_port: ClusterPortOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    https_cert: HttpsCertOption = None,
    https_key: HttpsKeyOption = None,
    https_ca: HttpsCaOption = None,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a platform's requests on another host, with gateways and a link to its control.

    The home must belong to a host that has joined the platform, or joins it now with --join and a
    token of `hostelry join-token`. `hostelry status`, `logs` and `down` work on this home.

    Example: hostelry gateway --home ./g --join https://10.0.0.2:7443 --token h1... --host 10.0.0.7

    Example: hostelry gateway --home ./g --host 10.0.0.7 --drain-s 20 --detach
    """
    joined(home_at(home), join_url, token, PeerRole.GATEWAY, host_name)
    options = UpOptions(
        home=home_at(home).root,
        gateway_only=True,
        host=host,
        port=port,
        gateway_workers=gateway_workers,
        drain_s=drain_s,
        cluster_host=cluster_host,
        cluster_port=cluster_port,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        https_cert=https_cert,
        https_key=https_key,
        https_ca=https_ca,
        hold_requests=hold_requests,
        hold_requests_each=hold_requests_each,
        hold_mb=hold_mb,
        mirror_process=not no_mirror_process,
        log_format=log_format,
    )
    (up_detached if detach else up_here)(options, as_json=as_json)
