"""`hostelry up`."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import UsageError
from hostelry.base.logging import TEXT, build_formatter
from hostelry.base.operator_secrets import hide_argument
from hostelry.cli import up_flags as flags
from hostelry.cli.home_option import (
    HomeOption,
    JsonOption,
    addresses,
    home_at,
    home_flag,
    load_home,
)
from hostelry.cli.wait_display import waiting
from hostelry.fleet.rules.copy_user import AUTO
from hostelry.home.fleet_option import LOCAL
from hostelry.home.home import Credentials, Home, UpConfig, make_home
from hostelry.home.store_option import secret_in
from hostelry.home.up_options import UpOptions, check_options
from hostelry.processes.background import start_detached
from hostelry.processes.systemd_unit import unit_text

PROGRAM = [sys.executable, "-m", "hostelry.cli.main"]


def up(  # noqa: PLR0913 - one parameter an option of the command
    home: HomeOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: flags.PortOption = None,
    s3_port: flags.S3PortOption = None,
    s3_endpoint: flags.S3EndpointOption = None,
    region: flags.RegionOption = None,
    account_id: flags.AccountOption = None,
    insecure_no_auth: flags.NoAuthOption = False,
    any_role: flags.AnyRoleOption = False,
    max_body_mb: Annotated[float, typer.Option(help="Maximum size of a request body.")] = 25.0,
    invoke_timeout_s: flags.InvokeTimeoutOption = 60.0,
    stream_timeout_s: flags.StreamTimeoutOption = 480.0,
    artifact_cache_gb: flags.CacheOption = 50.0,
    gateway_workers: flags.WorkersOption = None,
    no_mirror_process: flags.NoMirrorProcessOption = False,
    no_console: flags.NoConsoleOption = False,
    pace: flags.PaceOption = 1.0,
    at_zero: flags.AtZeroOption = "hold",
    hold_limit_s: flags.HoldLimitOption = None,
    hold_requests: flags.HoldRequestsOption = 4096,
    hold_requests_each: flags.HoldEachOption = 1024,
    hold_mb: flags.HoldMbOption = 256.0,
    serverless_idle_s: flags.ServerlessIdleOption = 600.0,
    metrics_mb: Annotated[float, typer.Option(help="Memory limit for metrics.")] = 256.0,
    logs_mb: Annotated[float, typer.Option(help="Disk limit for log events.")] = 1024.0,
    logs_days: flags.LogsDaysOption = 14,
    log_format: flags.LogFormatOption = TEXT,
    copy_user: flags.CopyUserOption = AUTO,
    files_gb: flags.FilesOption = 20.0,
    store: flags.StoreOption = None,
    drain_s: flags.DrainOption = 0.0,
    cluster_host: flags.ClusterHostOption = None,
    cluster_port: flags.ClusterPortOption = None,
    tls_ca: flags.TlsCaOption = None,
    tls_cert: flags.TlsCertOption = None,
    tls_key: flags.TlsKeyOption = None,
    https_cert: flags.HttpsCertOption = None,
    https_key: flags.HttpsKeyOption = None,
    https_ca: flags.HttpsCaOption = None,
    fleet: flags.FleetOption = LOCAL,
    ray_address: flags.RayAddressOption = None,
    ray_runtime_env: flags.RayRuntimeEnvOption = None,
    node_dir: flags.NodeDirOption = None,
    from_: flags.FromOption = None,
    detach: flags.DetachOption = False,
    print_unit: flags.PrintUnitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start the platform: the gateway, control and the object store.

    The platform is ready when the gateway and the object store answer signed calls. Processes that
    still run from an earlier start are adopted.

    Example: hostelry up --home /srv/hostelry --print-unit > /etc/systemd/system/hostelry.service

    Example: hostelry up --fleet ray --ray-address 10.0.0.5:6379

    Example: AWS_ACCESS_KEY_ID=k AWS_SECRET_ACCESS_KEY=s hostelry up --s3-endpoint http://nas:9000
    """
    given = dict(locals())
    keep_secret(store, print_unit=print_unit)
    if print_unit and from_ is not None:
        raise UsageError("--print-unit: a backup is restored once, so leave --from out")
    if print_unit:
        typer.echo(unit_text(PROGRAM, sys.argv[1:], home_at(home).root), nl=False)
        return
    options = build_options(given)
    check_options(options)
    if not detach:
        go_on_with_open_python(options)  # before the restore, since it begins the command again
    if from_ is not None:
        # Imported late: few starts restore a backup.
        from hostelry.cli.backup import restore_here

        restore_here(from_, options.home)
    (up_detached if detach else up_here)(options, as_json=as_json)


def build_options(given: Mapping[str, Any], **fixed: Any) -> UpOptions:
    """The options of `up`, `gateway` or `control`, from its parameters by name."""
    alike = {it.name for it in fields(UpOptions)} & given.keys() - {"home"}
    values = {name: given[name] for name in alike}
    for name, option in (("mirror_process", "no_mirror_process"), ("console", "no_console")):
        if option in given:
            values[name] = not given[option]
    return UpOptions(home=home_at(given["home"]).root, **values, **fixed)


def go_on_with_open_python(options: UpOptions) -> None:
    """Replace this process by the same command of an interpreter that copies' users can run.

    Returns if this interpreter is suitable, or no other one is.
    """
    from hostelry.processes.open_python import other_interpreter

    python = other_interpreter(options.copy_user, make_home(options.home))
    if python is not None:
        sys.stdout.flush()
        os.execv(python, [str(python), "-m", "hostelry.cli.main", *sys.argv[1:]])


def keep_secret(store: str | None, *, print_unit: bool) -> None:
    """Hide the store's URL from `ps`. Raises UsageError if a unit would show its password."""
    if store is None:
        return
    hide_argument(store)
    if print_unit and secret_in(store):
        raise UsageError(
            "--print-unit: every user can read a unit, and the store's URL has a password; leave it"
            " out of the URL, and set PGPASSFILE in the unit"
        )


def up_here(options: UpOptions, *, as_json: bool) -> None:
    """Run the platform in this process until Ctrl-C or `hostelry down`."""
    # Imported here: a start in the background leaves all of it to that process.
    import asyncio

    from hostelry.processes.up import Report, log_line, run_up

    started = monotonic_s()
    with waiting() as display:

        def ready(config: UpConfig, credentials: Credentials) -> None:
            display.pause()
            print_ready(Home(options.home), config, monotonic_s() - started, as_json)
            if not as_json:
                typer.echo("Ctrl-C, or `hostelry down`, stops it.")

        def say(text: str) -> None:
            display.say(text)
            log_line(text)

        report = Report(phase=display.phase, say=say, ready=ready)
        log_to(Home(options.home).logs / "up.log", options.log_format)
        asyncio.run(run_up(options, os.environ, report))
    typer.echo("Hostelry has stopped.", err=True)


def log_to(path: Path, log_format: str) -> None:
    """Write the messages of `up` into its log, too, as with --detach."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(build_formatter("up", log_format))
    log = logging.getLogger("hostelry.up")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def up_detached(options: UpOptions, *, as_json: bool) -> None:
    """Start the platform in the background and return when it is ready."""
    started = monotonic_s()
    with waiting() as display:
        start_detached(options, display.progress)
    at = Home(options.home)
    config, _ = load_home(at)
    print_ready(at, config, monotonic_s() - started, as_json)


def print_ready(home: Home, config: UpConfig, took_s: float, as_json: bool) -> None:
    """Print the addresses, and what to do next."""
    if as_json:
        ready = {"ready": True, **addresses(config), "home": str(home.root)}
        typer.echo(msgspec.json.encode({**ready, "seconds": round(took_s, 2)}))
        return
    flag = home_flag(home.root)
    store = "" if config.is_gateway_host else f"  object store  {config.client_s3_url}\n"
    typer.echo(
        f"Hostelry is ready ({took_s:.1f} s).\n"
        f"  gateway       {config.client_url}\n"
        f"{store}"
        f"  home          {home.root}\n"
        f"{console_line(config, flag)}"
        f'  use it        eval "$(hostelry env{flag})"\n'
        f"                hostelry exec{flag} -- python your_program.py"
    )
    if config.insecure_no_auth:
        typer.echo("  WARNING       unsigned requests are accepted (--insecure-no-auth)")


def console_line(config: UpConfig, flag: str) -> str:
    """The line with the console's address. Empty without a console."""
    if not config.has_console:
        return ""
    return f"  console       {config.console_url}  (`hostelry console{flag}` signs you in)\n"
