"""`hostelry status`."""

from typing import Any

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, settled
from hostelry.cli.state import PlatformProcess, control_state, platform_processes
from hostelry.cli.status_text import endpoint_lines, process_lines

DECLARED_NOTE = (
    "CPUs, memory and accelerators of instances are those that the instance type declares; "
    "they are not measured on this machine."
)
CONTROL_SILENT = "Control does not answer: endpoints cannot be shown (see `hostelry logs control`)."


def status(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show what runs: processes, endpoints, components, instances and copies, with every reason.

    Exit code 1 when a process of the platform is not running.

    Example: hostelry status

    Example: hostelry status --json
    """
    at = home_at(home)
    config, credentials = settled(at)
    processes = platform_processes(at, config)
    state = control_state(config, credentials) if processes_run(processes) else None
    door, s3 = config.door_url, config.s3_url
    if as_json:
        shown = {
            "home": str(at.root),
            "door": door,
            "object_store": s3,
            "processes": processes,
            "state": state,
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
    else:
        lines = [f"home {at.root}  door {door}  object store {s3}", "", *process_lines(processes)]
        lines += ["", *state_lines(state, running=processes_run(processes))]
        typer.echo("\n".join(lines).rstrip())
    if any(it.pid is None for it in processes):
        raise typer.Exit(1)


def processes_run(processes: list[PlatformProcess]) -> bool:
    """Whether anything of the platform runs at all."""
    return any(it.pid is not None for it in processes)


def state_lines(state: dict[str, Any] | None, *, running: bool) -> list[str]:
    """Control's account as text, or why there is none."""
    if not running:
        return ["Not running: start it with `hostelry up`."]
    if state is None:
        return [CONTROL_SILENT]
    endpoints = state.get("endpoints", [])
    lines = endpoint_lines(endpoints, SystemClock().now())
    return [*lines, DECLARED_NOTE] if endpoints else lines
