"""`hostelry control`: a further control of a platform, on this host."""

import os

import msgspec
import typer

from hostelry.base.errors import UsageError
from hostelry.base.logging import TEXT
from hostelry.base.own_arguments import hide_argument
from hostelry.base.peer_name import PeerRole
from hostelry.cli.home_option import HomeOption, JsonOption, home_at
from hostelry.cli.joining import HostNameOption, JoinOption, TokenOption, joined
from hostelry.cli.up import log_to
from hostelry.cli.up_flags import (
    ClusterHostOption,
    ClusterPortOption,
    DetachOption,
    LogFormatOption,
    StoreOption,
    TlsCaOption,
    TlsCertOption,
    TlsKeyOption,
)
from hostelry.cli.wait_display import waiting
from hostelry.cluster.start import check_cluster
from hostelry.home.home import Credentials, Home, UpConfig, load_config, make_home
from hostelry.home.up_options import UpOptions, check_logs
from hostelry.processes.background import start_detached


def control(  # noqa: PLR0913 - one parameter an option of the command
    home: HomeOption = None,
    join_url: JoinOption = None,
    token: TokenOption = None,
    host_name: HostNameOption = None,
    cluster_host: ClusterHostOption = None,
    cluster_port: ClusterPortOption = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    store: StoreOption = None,
    log_format: LogFormatOption = TEXT,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run another control process, which takes over when the current leader ends. Ctrl-C stops it.

    The home must belong to a host that has joined the platform, or joins it now. The platform's
    records must be in PostgreSQL. `hostelry status`, `logs`, `upgrade` and `down` work on this
    home.

    Example: hostelry control --home ./c --join https://10.0.0.2:7443 --cluster-host 10.0.0.3

    Example: hostelry control --home /srv/hostelry --detach
    """
    if store is not None:
        hide_argument(store)
    at = home_at(home)
    options = UpOptions(
        home=at.root,
        control_only=True,
        store=store,
        cluster_host=cluster_host,
        cluster_port=cluster_port,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        log_format=log_format,
    )
    check_logs(options)
    check_cluster(options)
    if join_url is not None and cluster_host is None and not at.config.exists():
        raise UsageError(
            "--join needs the address at which the other hosts reach this one: --cluster-host"
        )
    joined(at, join_url, token, PeerRole.CONTROL, host_name)
    at = make_home(at.root)
    with waiting() as display:
        if detach:
            start_detached(options, display.progress)
            print_ready(at, load_config(at), "`hostelry down` stops it.", as_json=as_json)
            return

        # Imported here: a start in the background leaves all of it to that process.
        import asyncio

        from hostelry.processes.control_host import run_control
        from hostelry.processes.up import Report, log_line

        def ready(config: UpConfig, credentials: Credentials) -> None:
            display.pause()
            print_ready(at, config, "Ctrl-C stops it.", as_json=as_json)

        def say(text: str) -> None:
            display.say(text)
            log_line(text)

        log_to(at.logs / "up.log", log_format)
        report = Report(phase=display.phase, say=say, ready=ready)
        asyncio.run(run_control(options, os.environ, report))


def print_ready(home: Home, config: UpConfig, stopped_by: str, *, as_json: bool) -> None:
    """Print where control is, and what stops it."""
    if as_json:
        shown = {"ready": True, "control": config.control_url, "home": str(home.root)}
        typer.echo(msgspec.json.encode(shown))
    else:
        typer.echo(f"Control runs at {config.control_url}. {stopped_by}")
