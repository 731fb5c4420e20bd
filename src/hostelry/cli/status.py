"""`hostelry status`."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli import completion as names
from hostelry.cli.control_requests import (
    control_state,
    jobs_trouble,
    unfinished_batches,
)
from hostelry.cli.home_option import (
    HomeOption,
    JsonOption,
    addresses,
    home_at,
    load_home,
    print_json,
)
from hostelry.cli.job_text import batch_line, running_jobs, transform_lines, trouble_lines
from hostelry.cli.quotas import reached_lines
from hostelry.cli.reasons_once import reasons_once
from hostelry.cli.status_text import (
    MOST_ALIKE,
    ai_benchmark_lines,
    disk_lines,
    endpoint_lines,
    experiment_lines,
    gateway_host_lines,
    is_full,
    leader_lines,
    process_lines,
    recommendation_lines,
    version_lines,
)
from hostelry.home.home import Home
from hostelry.home.platform_processes import PlatformProcess, platform_processes
from hostelry.home.store_option import place_shown

DECLARED_NOTE = (
    "CPUs, memory and accelerators of instances are those that the instance type declares; "
    "they are not measured on this machine."
)
NO_SUPERVISOR = (
    "No supervisor: processes keep running, and one that dies is not started again. `hostelry up` "
    "adopts them, `hostelry down` ends them."
)
CONTROL_SILENT = "Control does not answer: endpoints cannot be shown (see `hostelry logs control`)."


def status(
    home: HomeOption = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Show only this endpoint, with one line per adapter.",
            autocompletion=names.endpoints,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show processes, endpoints, components, instances and copies, with failure reasons.

    Exit code 1 if a process of the platform is not running, control does not answer, or the home's
    disk is full.

    Example: hostelry status

    Example: hostelry status --endpoint chat

    Example: hostelry status --json
    """
    at = home_at(home)
    config, credentials = load_home(at)
    processes = platform_processes(at, config)
    state = control_state(config, credentials) if processes_run(processes) else None
    disk = home_disk(at)
    trouble = jobs_trouble(config, credentials) if processes_run(processes) else None
    batches = unfinished_batches(config, credentials) if processes_run(processes) else []
    if endpoint is not None and state is not None:
        state["endpoints"] = only_endpoint(state.get("endpoints", []), endpoint)
    if as_json:
        shown = {
            "home": str(at.root),
            **addresses(config),
            "store": place_shown(at, config),
            "disk": disk,
            "processes": processes,
            "state": state,
            "jobs_trouble": trouble,
            "batches": batches,
        }
        print_json(shown)
    else:
        urls = f"gateway {config.client_url}  object store {config.client_s3_url}"
        urls += f"  console {config.console_url}" if config.has_console else ""
        lines = [f"home {at.root}  {urls}"]
        lines += [] if config.store_url is None else [f"store {place_shown(at, config)}"]
        lines += ["", *process_lines(processes)]
        running, alone = processes_run(processes), endpoint is not None
        lines += supervisor_lines(processes) + disk_lines(str(at.root), disk)
        lines += led_lines(state)
        lines += ["", *state_lines(state, running=running, alone=alone), *trouble_lines(trouble)]
        now = SystemClock().now()
        lines += quota_lines(state)
        lines += [] if alone or not batches else ["", *(batch_line(it, now) for it in batches)]
        typer.echo("\n".join(lines).rstrip())
    if state is None or any(it.pid is None for it in processes) or is_full(disk):
        raise typer.Exit(1)


def home_disk(home: Home) -> dict[str, int]:
    """Free bytes and files of the disk that the home is on."""
    found = os.statvfs(home.root)
    return {
        "free_bytes": found.f_bavail * found.f_frsize,
        "free_files": found.f_favail,
        "files": found.f_files,
    }


def only_endpoint(endpoints: Sequence[Mapping[str, Any]], name: str) -> Sequence[Mapping[str, Any]]:
    """A list with only the endpoint of this name. Raises TerminalError if it does not exist."""
    found = [it for it in endpoints if it["name"] == name]
    if not found:
        names = ", ".join(it["name"] for it in endpoints) or "none"
        raise TerminalError(f"there is no endpoint {name}. There are: {names}")
    return found


def processes_run(processes: list[PlatformProcess]) -> bool:
    """Whether any process of the platform runs."""
    return any(it.pid is not None for it in processes)


def supervisor_lines(processes: list[PlatformProcess]) -> list[str]:
    """A warning if processes run without a supervisor."""
    if not processes_run(processes) or processes[0].pid is not None:
        return []
    return ["", NO_SUPERVISOR]


def led_lines(state: dict[str, Any] | None) -> list[str]:
    """Lines about the leader, the standbys, the hosts with gateways, and their versions."""
    known = state or {}
    lines = leader_lines(known.get("control"), SystemClock().now())
    lines += gateway_host_lines(known.get("gateway_hosts", ())) + version_lines(known)
    return ["", *lines] if lines else []


def quota_lines(state: dict[str, Any] | None) -> list[str]:
    """Lines about the limits of quotas that are reached."""
    known = (state or {}).get("quotas") or {}
    lines = reached_lines(known.get("quotas", ()), known.get("currency", ""))
    return ["", *lines] if lines else []


def state_lines(state: dict[str, Any] | None, *, running: bool, alone: bool) -> list[str]:
    """Control's state as text, or why the state is unknown."""
    if not running:
        return ["Not running: start it with `hostelry up`."]
    if state is None:
        return [CONTROL_SILENT]
    endpoints = state.get("endpoints", [])
    jobs = [] if alone else running_jobs(state.get("transform_jobs", ()))
    most_alike = sys.maxsize if alone else MOST_ALIKE
    now = SystemClock().now()
    lines = (
        []
        if jobs and not endpoints
        else endpoint_lines(reasons_once(endpoints), now, most_alike=most_alike)
    )
    lines += transform_lines(jobs, now, most_alike=most_alike)
    shown = [it["name"] for it in endpoints] if alone else None
    benchmarks = [] if alone else state.get("recommendation_jobs", ())
    lines += recommendation_lines(benchmarks, now)
    lines += ai_benchmark_lines([] if alone else state.get("ai_benchmark_jobs", ()), now)
    lines += experiment_lines(state.get("inference_experiments", ()), now, shown)
    return [*lines, DECLARED_NOTE] if endpoints or jobs else lines
