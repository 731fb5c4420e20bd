"""`hostelry down`."""

from typing import Annotated

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home
from hostelry.cli.wait_display import waiting
from hostelry.home.home import Home
from hostelry.processes.down import StopOutcome, stop_hostelry


def down(
    home: HomeOption = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after --drain-s before remaining processes are killed.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Stop the platform with all agents and copies, and wait until they have ended.

    Endpoints and uploaded objects are kept. The next `hostelry up` starts them again.

    Example: hostelry down

    Example: hostelry down --home ./h --timeout 20
    """
    at = home_at(home)
    config, _ = load_home(at)
    started = monotonic_s()
    with waiting() as display:
        outcome = stop_hostelry(at, timeout + config.drain_s, display.phase)
    took_s = monotonic_s() - started
    if as_json:
        typer.echo(msgspec.json.encode({"outcome": outcome.value, "seconds": round(took_s, 1)}))
    else:
        typer.echo(down_sentence(at, outcome, took_s))


def down_sentence(home: Home, outcome: StopOutcome, took_s: float) -> str:
    """A sentence about the outcome of `down`."""
    match outcome:
        case StopOutcome.NOTHING:
            return f"No hostelry was running in {home.root}."
        case StopOutcome.SWEPT:
            return f"Hostelry was not running in {home.root}; ended the processes that it had left."
        case StopOutcome.KILLED:
            return f"Hostelry did not stop in time and was killed after {took_s:.1f} s."
        case StopOutcome.STOPPED:
            return f"Hostelry has stopped ({took_s:.1f} s)."
