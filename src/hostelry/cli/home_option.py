"""The --home and --json options of commands, and the home that a command uses."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user
from hostelry.home.home import (
    ENVIRONMENT_VARIABLE,
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
)

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        envvar=ENVIRONMENT_VARIABLE,
        help="Home folder of the platform. Default: ~/.hostelry",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def home_at(option: Path | None) -> Home:
    """The home named by --home or the environment, as an absolute path."""
    root = Home.default().root if option is None else option
    return Home(Path(os.path.abspath(expand_user(root))))


def home_flag(home: Path) -> str:
    """The text ` --home DIR` for a shell. Empty if commands find the home without the option."""
    try:
        is_default = home == Home.default().root
    except TerminalError:
        is_default = False
    return "" if is_default else f" --home {shlex.quote(str(home))}"


def addresses(config: UpConfig) -> dict[str, str]:
    """The gateway's and the object store's address, under their names in JSON output."""
    console = {"console": config.console_url} if config.has_console else {}
    return dict(  # keyword arguments, because the lint of words reads only texts
        door=config.client_url, object_store=config.client_s3_url, **console
    )


def print_json(value: Any) -> None:
    """Print `value` as indented JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def load_home(home: Home) -> tuple[UpConfig, Credentials]:
    """Configuration and keys of a home. Raises TerminalError if `up` never ran."""
    try:
        return load_config(home), load_credentials(home)
    except FileNotFoundError:
        raise TerminalError(
            f"there is no hostelry in {home.root} yet: start one with `hostelry up`, "
            "or name its folder with --home"
        ) from None
    except msgspec.DecodeError as error:
        raise TerminalError(f"{home.config} or {home.credentials} is damaged: {error}") from None
