"""`hostelry control` and `hostelry gateway`: further processes of a platform, on this host."""

import os
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import UsageError
from hostelry.base.operator_secrets import hide_argument
from hostelry.base.peers import PeerRole
from hostelry.cli.home_option import HomeOption, JsonOption, home_at
from hostelry.cli.up import (
    DetachOption,
    build_options,
    log_to,
    takes_settings,
    up_detached,
    up_here,
)
from hostelry.cli.wait_display import waiting
from hostelry.cluster.start import check_cluster
from hostelry.home.home import Credentials, Home, UpConfig, load_config, make_home
from hostelry.home.run_file import lock_home
from hostelry.home.up_options import check_options
from hostelry.processes.background import start_detached

JoinOption = Annotated[
    str | None,
    typer.Option(
        "--join", help="Address of the platform to join: https://HOST:PORT.", show_default=False
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="HOSTELRY_JOIN_TOKEN",
        help=(
            "Token printed by `hostelry join-token` on the platform. A host that "
            "joins again needs a new token."
        ),
        show_default=False,
    ),
]
HostNameOption = Annotated[
    str | None,
    typer.Option(
        help="Unique name of this host. [default: the machine's name]", show_default=False
    ),
]


@takes_settings("control")
def control(
    home: HomeOption = None,
    join_url: JoinOption = None,
    token: TokenOption = None,
    host_name: HostNameOption = None,
    *,
    detach: DetachOption = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Run another control process, which takes over when the current leader ends. Ctrl-C stops it.

    The home must belong to a host that has joined the platform, or joins it now. The platform's
    records must be in PostgreSQL. `hostelry status`, `logs`, `upgrade` and `down` work on this
    home.

    Example: hostelry control --home ./c --join https://10.0.0.2:7443 --cluster-host 10.0.0.3

    Example: hostelry control --home /srv/hostelry --detach
    """
    if settings["store"] is not None:
        hide_argument(settings["store"])
    at = home_at(home)
    options = build_options(home, settings, control_only=True)
    check_options(options)
    check_cluster(options)
    if join_url is not None and options.cluster_host is None and not at.config.exists():
        raise UsageError(
            "--join needs the address at which the other hosts reach this one: --cluster-host"
        )
    join_platform(at, join_url, token, PeerRole.CONTROL, host_name)
    at = make_home(at.root)
    with waiting() as display:
        if detach:
            start_detached(options, display.progress)
            print_ready(at, load_config(at), "`hostelry down` stops it.", as_json=as_json)
            return

        # Imported here: a start in the background leaves this work to the started process.
        import asyncio

        from hostelry.processes.control_host import run_control
        from hostelry.processes.up import Report, log_line

        def ready(config: UpConfig, credentials: Credentials) -> None:
            display.pause()
            print_ready(at, config, "Ctrl-C stops it.", as_json=as_json)

        def say(text: str) -> None:
            display.say(text)
            log_line(text)

        log_to(at.logs / "up.log", options.log_format)
        report = Report(phase=display.phase, say=say, ready=ready)
        asyncio.run(run_control(options, os.environ, report))


def print_ready(home: Home, config: UpConfig, stopped_by: str, *, as_json: bool) -> None:
    """Print control's address, and how to stop control."""
    if as_json:
        shown = {"ready": True, "control": config.control_url, "home": str(home.root)}
        typer.echo(msgspec.json.encode(shown))
    else:
        typer.echo(f"Control runs at {config.control_url}. {stopped_by}")


@takes_settings("gateway")
def gateway(
    home: HomeOption = None,
    join_url: JoinOption = None,
    token: TokenOption = None,
    host_name: HostNameOption = None,
    *,
    detach: DetachOption = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Serve a platform's requests on another host, with gateways and a link to its control.

    The home must belong to a host that has joined the platform, or joins it now with --join and a
    token of `hostelry join-token`. `hostelry status`, `logs` and `down` work on this home.

    Example: hostelry gateway --home ./g --join https://10.0.0.2:7443 --token h1... --host 10.0.0.7

    Example: hostelry gateway --home ./g --host 10.0.0.7 --drain-s 20 --detach
    """
    join_platform(home_at(home), join_url, token, PeerRole.GATEWAY, host_name)
    options = build_options(home, settings, gateway_only=True)
    (up_detached if detach else up_here)(options, as_json=as_json)


def join_platform(
    home: Home, url: str | None, token: str | None, role: PeerRole, name: str | None
) -> None:
    """Join the platform at `url`, unless `home` has joined it before. Raises HostelryError.

    With a new token the home joins again.
    """
    if url is None:
        if name is not None and not home.config.exists():
            raise UsageError(f"--host-name {name}: a host has its name by --join URL")
        return
    if not token:
        if home.config.exists():
            return
        raise UsageError(
            "--join needs a token: print one on the platform's host by `hostelry join-token"
            f" --role {role.value}`"
        )
    # Imported here, because the certificates' package takes longer to import than all else.
    from hostelry.cluster.joining import join, must_join

    with lock_home(make_home(home.root)):
        if must_join(token, home, role):
            typer.echo(f"Joined as {join(url, token, home, role, name).uri}.", err=True)
