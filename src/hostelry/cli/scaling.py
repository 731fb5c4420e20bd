"""`hostelry scaling`: what is scaled, why, and what it took."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import typer
from rich.console import Console
from rich.text import Text

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, settled
from hostelry.cli.scaling_responsive import responsive
from hostelry.cli.scaling_text import activity_lines, policy_lines, status_lines
from hostelry.cli.timeline_chart import chart
from hostelry.server.home import Credentials, UpConfig

TIMEOUT_S = 30.0
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PIPE_WIDTH = 100

scaling = typer.Typer(
    help="Show what is scaled, by which policies, and what each act took.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
scaling.command(short_help="Have a policy act within seconds.")(responsive)

ComponentOption = Annotated[str | None, typer.Option(help="Only this inference component.")]
EndpointOption = Annotated[str | None, typer.Option(help="Only this endpoint.")]


@scaling.command(short_help="Show every target: its number, its bounds, what was decided.")
def status(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every scalable target: its number, its bounds, and what was decided last and why.

    Example: hostelry scaling status
    """
    targets = asked_for(home, endpoint, component)
    lines = [*status_lines(targets), *([] if as_json else not_responsive(home))]
    show(targets, lines, as_json=as_json)


@scaling.command(short_help="Show every policy with its alarms and their states.")
def policies(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every scaling policy with its alarms and the states that they are in.

    Example: hostelry scaling policies --endpoint chat
    """
    targets = asked_for(home, endpoint, component)
    show(targets, policy_lines(targets), as_json=as_json)


@scaling.command(short_help="Show the newest acts, each with its cause and receipt.")
def activities(
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    not_scaled: Annotated[
        bool, typer.Option("--not-scaled", help="Also what was considered and not done.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest acts of scaling, each with its cause and its receipt.

    Example: hostelry scaling activities --component chat-base --not-scaled
    """
    targets = asked_for(home, endpoint, component)
    show(targets, activity_lines(targets, not_scaled=not_scaled), as_json=as_json)


@scaling.command(short_help="Draw load, capacity and every act over time.")
def timeline(
    endpoint: Annotated[str, typer.Argument(help="The endpoint.")],
    component: ComponentOption = None,
    since: Annotated[
        str, typer.Option(help="How far back: a number and s, m, h or d, up to 15d.")
    ] = "15m",
    png: Annotated[Path | None, typer.Option(help="Also draw it into this PNG file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Also draw it into this SVG file.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw load, capacity and every act over time, with what each act took and cost.

    Of an act, t0 is when the load rose over what there was, t1 when it was decided, t2 when new
    capacity first answered.

    Example: hostelry scaling timeline chat --since 1h --png scaling.png
    """
    query = {"endpoint": endpoint, "since_s": str(seconds_of(since))}
    query |= {"component": component} if component else {}
    found = ask(home, "/internal/scaling/timeline", query)
    if not found["timelines"]:
        what = endpoint if component is None else f"{endpoint} with component {component}"
        raise TerminalError(
            f"nothing of endpoint {what} is registered to be scaled;"
            " `hostelry scaling status` shows what is"
        )
    for path, suffix in ((png, ".png"), (svg, ".svg")):
        if path is not None:
            draw(found, path, suffix)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    console = Console(highlight=False)
    width = console.width if console.is_terminal else PIPE_WIDTH
    for one in found["timelines"]:
        for row in chart(one, found["since"], found["now"], width):
            console.print(Text(row.text, style=row.style), soft_wrap=True)
        console.print()


def draw(found: Mapping[str, Any], path: Path, suffix: str) -> None:
    """Draw timelines into a file; raises TerminalError where that cannot be."""
    if path.suffix.lower() != suffix:
        raise TerminalError(f"{path} must end with {suffix}")
    try:
        # matplotlib is an extra: whoever draws nothing goes without it.
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


def asked_for(
    home: Path | None, endpoint: str | None, component: str | None
) -> list[Mapping[str, Any]]:
    """The targets of the endpoint and the component that are named, or all."""
    every: Sequence[Mapping[str, Any]] = ask(home, "/internal/scaling", {})["targets"]
    return [
        it
        for it in every
        if endpoint in (None, it["endpoint"]) and component in (None, it["component"])
    ]


def not_responsive(home: Path | None) -> list[str]:
    """What chose the responsive policy and cannot have it, and why."""
    found: Sequence[Mapping[str, str]] = ask(home, "/internal/scaling", {})["not_responsive"]
    return [f"{it['arn']}: {it['why']}" for it in found]


def show(targets: Sequence[Mapping[str, Any]], lines: Sequence[str], *, as_json: bool) -> None:
    """Print lines, or all that there is as JSON."""
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode({"targets": targets})).decode())
        return
    typer.echo("\n".join(lines))


def ask(home: Path | None, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Control's answer; raises TerminalError where there is none."""
    config, credentials = settled(home_at(home))
    return answer_of(config, credentials, path, query)


def answer_of(
    config: UpConfig, credentials: Credentials, path: str, query: Mapping[str, str]
) -> dict[str, Any]:
    """What control answers to a GET; raises TerminalError."""
    try:
        answer = httpx.get(
            f"{config.control_url}{path}",
            params=dict(query),
            headers={"X-Hostelry-Key": credentials.internal_key},
            timeout=TIMEOUT_S,
            trust_env=False,
        )
    except httpx.HTTPError:
        raise TerminalError(
            f"control does not answer at {config.control_url}, and only it knows of scaling: start"
            " it with `hostelry up`, or see `hostelry logs control`"
        ) from None
    if answer.status_code != 200:
        raise TerminalError(f"control refused: {answer.text}")
    found: dict[str, Any] = decode(answer.content, dict[str, Any])
    return found


def seconds_of(text: str) -> float:
    """The seconds in a text like 15m; raises TerminalError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip(), re.ASCII)
    if found is None or not 0.0 < float(found[1]) * UNITS_S[found[2]] <= 15 * UNITS_S["d"]:
        raise TerminalError(f"--since {text} must be a number and s, m, h or d, at most 15d")
    return float(found[1]) * UNITS_S[found[2]]
