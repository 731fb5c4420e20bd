"""`hostelry scaling`: scalable targets, their decisions and their acts."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.acts.act_text import act_rows
from hostelry.cli.completion import names
from hostelry.cli.control_requests import control_answer
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.printable import printable, whole_stream
from hostelry.cli.scaling_responsive import responsive
from hostelry.cli.scaling_text import activity_lines, policy_lines, status_lines
from hostelry.cli.timeline_chart import chart
from hostelry.cli.timeline_updates import update_rows

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PIPE_WIDTH = 100

scaling = typer.Typer(
    help=("Show scaled resources, their policies, and the duration of each scaling action."),
    no_args_is_help=True,
    rich_markup_mode=None,
)
scaling.command(short_help="Have a policy act within seconds.")(responsive)

ComponentOption = Annotated[
    str | None,
    typer.Option(help="Show only this inference component.", autocompletion=names.components),
]
EndpointOption = Annotated[
    str | None, typer.Option(help="Show only this endpoint.", autocompletion=names.endpoints)
]


@scaling.command(short_help="Show every target: its capacity, its bounds, its last decision.")
def status(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every scalable target with its capacity, bounds, and last decision with the reason.

    Example: hostelry scaling status
    """
    targets = scaling_targets(home, endpoint, component)
    lines = [*status_lines(targets), *([] if as_json else not_responsive(home))]
    show(targets, lines, as_json=as_json)


@scaling.command(short_help="Show every policy with its alarms and their states.")
def policies(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every scaling policy with its alarms and their states.

    Example: hostelry scaling policies --endpoint chat
    """
    targets = scaling_targets(home, endpoint, component)
    show(targets, policy_lines(targets), as_json=as_json)


@scaling.command(short_help="Show the newest activities, each with cause and receipt.")
def activities(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    not_scaled: Annotated[
        bool, typer.Option("--not-scaled", help="Also show decisions that changed nothing.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest scaling activities, each with its cause and its times.

    Example: hostelry scaling activities --component chat-base --not-scaled
    """
    targets = scaling_targets(home, endpoint, component)
    show(targets, activity_lines(targets, not_scaled=not_scaled), as_json=as_json)


@scaling.command(short_help="Draw load, capacity and every act over time.")
def timeline(
    endpoint: Annotated[
        str, typer.Argument(help="Name of the endpoint.", autocompletion=names.endpoints)
    ],
    component: ComponentOption = None,
    since: Annotated[
        str,
        typer.Option(help="Length of the period up to now: a number and s, m, h or d, up to 15d."),
    ] = "15m",
    png: Annotated[Path | None, typer.Option(help="Also write the chart to this PNG file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Also write the chart to this SVG file.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw load, capacity and scaling actions over time, with the duration and cost of each action.

    t0 is the time when the load exceeded the capacity, t1 the time of the decision, t2 the time
    when the new capacity first answered. Below the chart are the endpoint's updates, with the
    start, duration and traffic share of each step and the reason for a rollback, and the actions of
    operators.

    Example: hostelry scaling timeline chat --since 1h --png scaling.png
    """
    query = {"endpoint": endpoint, "since_s": str(seconds_of(since))}
    query |= {"component": component} if component else {}
    found = ask(home, "/internal/scaling/timeline", query)
    acts = [] if component else ask(home, "/internal/audit", {"endpoint": endpoint})["entries"]
    found["operator_acts"] = [it for it in reversed(acts) if it["at"] >= found["since"]]
    if not found["timelines"] and (png or svg or not (found["updates"] or found["operator_acts"])):
        what = endpoint if component is None else f"{endpoint} with component {component}"
        raise TerminalError(
            f"endpoint {what} has no scalable target"
            + ("" if found["updates"] else f", and no update of the last {since}")
            + ";"
            " `hostelry scaling status` shows the targets that there are"
        )
    for path, suffix in ((png, ".png"), (svg, ".svg")):
        if path is not None:
            draw(found, path, suffix)
    if as_json:
        print_json(found)
        return
    console = Console(file=whole_stream(sys.stdout), highlight=False)
    width = console.width if console.is_terminal else PIPE_WIDTH
    for one in found["timelines"]:
        for row in chart(one, found["since"], found["now"], width):
            console.print(Text(printable(row.text), style=row.style), soft_wrap=True)
        console.print()
    for row in [
        *update_rows(endpoint, found["updates"]),
        *act_rows(endpoint, found["operator_acts"]),
    ]:
        console.print(Text(printable(row.text), style=row.style), soft_wrap=True)


def draw(found: Mapping[str, Any], path: Path, suffix: str) -> None:
    """Draw timelines into a file; raises TerminalError where it cannot be written."""
    if path.suffix.lower() != suffix:
        raise TerminalError(f"{path} must end with {suffix}")
    try:
        # matplotlib is an extra, which only pictures need.
        from hostelry.cli.timeline_image import save
    except ImportError as error:
        raise TerminalError(
            f"pictures need matplotlib, which is not installed ({error.name}): install"
            " hostelry[charts], or leave --png and --svg out"
        ) from None
    try:
        save(found["timelines"], found["since"], found["now"], path)
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None


def scaling_targets(
    home: Path | None, endpoint: str | None, component: str | None
) -> list[Mapping[str, Any]]:
    """The scalable targets of the endpoint and the component, or all."""
    return [
        target
        for target in ask(home, "/internal/scaling", {})["targets"]
        if endpoint in (None, target["endpoint"]) and component in (None, target["component"])
    ]


def not_responsive(home: Path | None) -> list[str]:
    """Resources that chose the responsive policy and cannot have it, each with the reason."""
    found: Sequence[Mapping[str, str]] = ask(home, "/internal/scaling", {})["not_responsive"]
    return [f"{it['arn']}: {it['why']}" for it in found]


def show(targets: Sequence[Mapping[str, Any]], lines: Sequence[str], *, as_json: bool) -> None:
    """Print lines, or all targets as JSON."""
    if as_json:
        print_json({"targets": targets})
    else:
        typer.echo("\n".join(lines))


def ask(home: Path | None, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer of control; raises TerminalError where there is none."""
    config, credentials = settled(home_at(home))
    return control_answer(config, credentials, path, query, knows="of scaling")


def seconds_of(text: str) -> float:
    """The seconds in a text like 15m; raises TerminalError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip(), re.ASCII)
    if found is None or not 0.0 < float(found[1]) * UNITS_S[found[2]] <= 15 * UNITS_S["d"]:
        raise UsageError(f"--since {text} must be a number and s, m, h or d, at most 15d")
    return float(found[1]) * UNITS_S[found[2]]
