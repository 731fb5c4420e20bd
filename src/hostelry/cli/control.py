"""`hostelry control`: a further control of a platform, on this host."""

import asyncio
import os

import msgspec
import typer

from hostelry.base.logging import TEXT
from hostelry.base.own_arguments import hide_argument
from hostelry.cli.home_option import HomeOption, JsonOption, home_at
from hostelry.cli.up import log_to, waiting
from hostelry.cli.up_flags import DetachOption, LogFormatOption, StoreOption
from hostelry.server.control_host import run_control
from hostelry.server.detached import start_detached
from hostelry.server.home import Credentials, Home, UpConfig, load_config
from hostelry.server.up import Report, log_line, make_home
from hostelry.server.up_options import UpOptions


def control(
    home: HomeOption = None,
    store: StoreOption = None,
    log_format: LogFormatOption = TEXT,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a further control, which leads when the present leader ends; Ctrl-C stops it.

    The home is one that has joined a platform whose records are in PostgreSQL. `hostelry status`,
    `logs`, `upgrade` and `down` work on it.

    Example: hostelry control --home /srv/hostelry --detach
    """
    if store is not None:
        hide_argument(store)
    at = make_home(home_at(home).root)
    options = UpOptions(home=at.root, control_only=True, store=store, log_format=log_format)
    with waiting() as display:
        if detach:
            start_detached(options, display.progress)
            print_ready(at, load_config(at), "`hostelry down` stops it.", as_json=as_json)
            return

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
