"""`hostelry up`."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import UsageError
from hostelry.base.logging import build_formatter
from hostelry.base.operator_secrets import hide_argument
from hostelry.cli.home_option import (
    HomeOption,
    JsonOption,
    addresses,
    home_at,
    home_flag,
    load_home,
)
from hostelry.cli.wait_display import waiting
from hostelry.home.home import Credentials, Home, UpConfig, make_home
from hostelry.home.settings import PlatformSetting
from hostelry.home.store_option import secret_in
from hostelry.home.up_options import SETTINGS, UpOptions, check_options
from hostelry.processes.background import start_detached
from hostelry.processes.systemd_unit import unit_text

DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Run in the background, and return when the platform is ready."),
]
LISTED_FIRST = {"host", "port", "s3_port"}
PROGRAM = [sys.executable, "-m", "hostelry.cli.main"]
Command = Callable[..., None]


def takes_settings(command: str) -> Callable[[Command], Command]:
    """Give a function with `**settings` the options of the settings of `command`."""

    def declare(function: Command) -> Command:
        signature = inspect.signature(function)
        own = [it for it in signature.parameters.values() if it.kind is not it.VAR_KEYWORD]
        place = sum(it.kind is it.POSITIONAL_OR_KEYWORD for it in own)
        settings = [it for it in fields(UpOptions) if it.name in SETTINGS]
        settings.sort(key=lambda it: (it.name not in LISTED_FIRST, it.name))
        declared = [
            declare_option(field, SETTINGS[field.name])
            for field in settings
            if command in SETTINGS[field.name].commands
        ]
        parameters = [*own[:place], *declared, *own[place:]]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return declare


def declare_option(field: Any, setting: PlatformSetting) -> inspect.Parameter:
    """A command's parameter for a field of `UpOptions`. `no_NAME` switches the field off."""
    name = f"no_{field.name}" if field.default is True else field.name
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, help=setting.help, metavar=setting.metavar, envvar=setting.envvar)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if field.default is True else field.default,
        annotation=Annotated[field.type, option],
    )


@takes_settings("up")
def up(
    home: HomeOption = None,
    *,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Backup to restore into the empty home before the start (see `hostelry backup`).",
        ),
    ] = None,
    detach: DetachOption = False,
    print_unit: Annotated[
        bool,
        typer.Option("--print-unit", help="Print a systemd unit that runs this command and exit."),
    ] = False,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Start the platform: the gateway, control and the object store.

    The platform is ready when the gateway and the object store answer signed calls. Processes that
    still run from an earlier start are adopted.

    Example: hostelry up --home /srv/hostelry --print-unit > /etc/systemd/system/hostelry.service

    Example: hostelry up --fleet ray --ray-address 10.0.0.5:6379

    Example: AWS_ACCESS_KEY_ID=k AWS_SECRET_ACCESS_KEY=s hostelry up --s3-endpoint http://nas:9000
    """
    keep_secret(settings["store"], print_unit=print_unit)
    if print_unit and from_ is not None:
        raise UsageError("--print-unit: a backup is restored once, so leave --from out")
    if print_unit:
        typer.echo(unit_text(PROGRAM, sys.argv[1:], home_at(home).root), nl=False)
        return
    options = build_options(home, settings)
    check_options(options)
    if not detach:
        go_on_with_open_python(options)  # before the restore, because it runs the command again
    if from_ is not None:
        # Imported here, because few starts restore a backup.
        from hostelry.cli.backup import restore_here

        restore_here(from_, options.home)
    (up_detached if detach else up_here)(options, as_json=as_json)


def build_options(home: Path | None, settings: Mapping[str, Any], **fixed: Any) -> UpOptions:
    """Build the options of `up`, `gateway` or `control` from the parameters of its settings."""
    values: dict[str, Any] = {
        name.removeprefix("no_"): not value if name.startswith("no_") else value
        for name, value in settings.items()
    }
    return UpOptions(home=home_at(home).root, **values, **fixed)


def go_on_with_open_python(options: UpOptions) -> None:
    """Replace this process by the same command in an interpreter that copies' users can run.

    Returns if this interpreter is suitable, or if no other one is.
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
    # Imported here: a start in the background leaves this work to the started process.
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
    """Also write the messages of `up` into its log file, as with --detach."""
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
    """Print the addresses, and the next commands."""
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
