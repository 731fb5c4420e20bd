"""`hostelry control`: a further control of a platform, on this host."""

import asyncio
import os

import msgspec
import typer

from hostelry.base.logging import TEXT
from hostelry.base.own_arguments import hide_argument
from hostelry.cli.home_option import HomeOption, JsonOption, home_at
from hostelry.cli.up import log_to, waiting
from hostelry.cli.up_flags import LogFormatOption, StoreOption
from hostelry.server.control_host import run_control
from hostelry.server.home import Credentials, UpConfig
from hostelry.server.up import Report, log_line, make_home


def control(
    home: HomeOption = None,
    store: StoreOption = None,
    log_format: LogFormatOption = TEXT,
    as_json: JsonOption = False,
) -> None:
    """Run a further control, which leads when the present leader ends; Ctrl-C stops it.

    The home is one that has joined a platform whose records are in PostgreSQL. `hostelry status`,
    `logs` and `down` work on it.

    Example: hostelry control --home /srv/hostelry
    """
    if store is not None:
        hide_argument(store)
    at = make_home(home_at(home).root)
    with waiting() as display:

        def ready(config: UpConfig, credentials: Credentials) -> None:
            display.pause()
            if as_json:
                shown = {"ready": True, "control": config.control_url, "home": str(at.root)}
                typer.echo(msgspec.json.encode(shown))
            else:
                typer.echo(f"Control runs at {config.control_url}. Ctrl-C stops it.")

        def say(text: str) -> None:
            display.say(text)
            log_line(text)

        log_to(at.logs / "up.log", log_format)
        report = Report(phase=display.phase, say=say, ready=ready)
        asyncio.run(run_control(at, store, os.environ, report))
