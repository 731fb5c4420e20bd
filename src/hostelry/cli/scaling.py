"""`hostelry scaling`: scalable targets, their decisions and their activities."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import printable, whole_stream
from hostelry.cli import completion as names
from hostelry.cli.acts import act_rows
from hostelry.cli.control_requests import control_answer, document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import columns
from hostelry.cli.timeline import chart, clock_text, receipt_text, update_rows
from hostelry.domain.scope import Scope
from hostelry.home.home import Credentials, UpConfig
from hostelry.scaling.decide.responsive.options import (
    OFF,
    RESPONSIVE_TAG,
    ResponsiveOptions,
    build_options_tag,
)

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PIPE_WIDTH = 100
scaling = typer.Typer(
    help=("Show scaled resources, their policies, and the duration of each scaling action."),
    no_args_is_help=True,
    rich_markup_mode=None,
)
ComponentOption = Annotated[
    str | None,
    typer.Option(help="Show only this inference component.", autocompletion=names.components),
]
EndpointOption = Annotated[
    str | None, typer.Option(help="Show only this endpoint.", autocompletion=names.endpoints)
]
NOTHING = "There is no scalable target: see RegisterScalableTarget."


def responsive(
    endpoint: Annotated[
        str, typer.Argument(help="Name of the endpoint.", autocompletion=names.endpoints)
    ],
    component: Annotated[
        str | None,
        typer.Option(
            help=("Change only this inference component. Default: all components of the endpoint."),
            autocompletion=names.components,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Desired concurrency per copy (per instance for a model endpoint)."),
    ] = None,
    false_alarms_per_hour: Annotated[
        float,
        typer.Option(
            help=("Scaling actions per hour that unchanged load may cause, from 0.001 to 20.")
        ),
    ] = 1.0,
    scale_in_after: Annotated[
        float | None,
        typer.Option(
            help=(
                "Remove a copy after this number of seconds of low load, if no "
                "target-tracking policy scales in. Default: only AWS's policies scale in."
            )
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Turn the responsive policy off.")] = False,
    home: HomeOption = None,
) -> None:
    """Scale out within seconds when the load rises, in addition to other policies.

    The bounds are those of the registered scalable target. Exit code 1 if there is no such endpoint
    or component, or a value is invalid.

    Example: hostelry scaling responsive chat --target 5

    Example: hostelry scaling responsive shared --component chat-base --off
    """
    value = tag_value(target, false_alarms_per_hour, scale_in_after, off=off)
    config, credentials = load_home(home_at(home))
    scope = Scope(credentials.account_id, credentials.region)
    kind, name = ("endpoint", endpoint) if component is None else ("inference-component", component)
    arn = scope.arn(kind, name)
    if component is not None:
        check_on(config, credentials, endpoint, component)
    if value == OFF and component is None:
        call(config, credentials, "DeleteTags", {"ResourceArn": arn, "TagKeys": [RESPONSIVE_TAG]})
    else:
        tags = [{"Key": RESPONSIVE_TAG, "Value": value}]
        call(config, credentials, "AddTags", {"ResourceArn": arn, "Tags": tags})
    typer.echo(outcome(f"{kind} {name}", value))


scaling.command(short_help="Have a policy act within seconds.")(responsive)


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
    query = {"endpoint": endpoint, "since_s": str(parse_seconds(since))}
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
    """Draw timelines into a file. Raises TerminalError if the file cannot be written."""
    if path.suffix.lower() != suffix:
        raise TerminalError(f"{path} must end with {suffix}")
    try:
        # Imported here: only pictures need matplotlib, which is an extra.
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
    """Resources that chose the responsive policy but cannot have it, each with the reason."""
    found: Sequence[Mapping[str, str]] = ask(home, "/internal/scaling", {})["not_responsive"]
    return [f"{it['arn']}: {it['why']}" for it in found]


def show(targets: Sequence[Mapping[str, Any]], lines: Sequence[str], *, as_json: bool) -> None:
    """Print `lines`, or all targets as JSON."""
    if as_json:
        print_json({"targets": targets})
    else:
        typer.echo("\n".join(lines))


def ask(home: Path | None, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer of control. Raises TerminalError if control does not answer."""
    config, credentials = load_home(home_at(home))
    return control_answer(config, credentials, path, query, knows="of scaling")


def parse_seconds(text: str) -> float:
    """Convert a text like 15m to seconds. Raises TerminalError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip(), re.ASCII)
    if found is None or not 0.0 < float(found[1]) * UNITS_S[found[2]] <= 15 * UNITS_S["d"]:
        raise UsageError(f"--since {text} must be a number and s, m, h or d, at most 15d")
    return float(found[1]) * UNITS_S[found[2]]


def tag_value(
    target: float | None, false_alarms_per_hour: float, scale_in_after_s: float | None, *, off: bool
) -> str:
    """The value of the tag. Raises TerminalError for invalid or contradicting options."""
    if off:
        if target is not None:
            raise UsageError("--off turns the policy off, and --target turns it on: give one")
        return OFF
    if target is None:
        raise UsageError("--target is missing: the desired concurrency per copy, for example 5")
    try:
        options = ResponsiveOptions(
            target=target,
            false_alarms_per_hour=false_alarms_per_hour,
            scale_in_after_s=scale_in_after_s,
        )
    except ValueError as error:
        raise TerminalError(str(error)) from None
    return build_options_tag(options)


def outcome(what: str, value: str) -> str:
    """The outcome of the command in a sentence."""
    if value == OFF:
        return f"{what}: the responsive policy is off"
    return (
        f"{what}: responsive, {RESPONSIVE_TAG}={value}; "
        "`hostelry scaling status` shows its scalable target and its decisions"
    )


def check_on(config: UpConfig, credentials: Credentials, endpoint: str, component: str) -> None:
    """Raise TerminalError unless the component exists on that endpoint."""
    found = call(
        config, credentials, "DescribeInferenceComponent", {"InferenceComponentName": component}
    )
    if found["EndpointName"] != endpoint:
        raise TerminalError(
            f"inference component {component} is on endpoint {found['EndpointName']}, "
            f"not on {endpoint}"
        )


def call(
    config: UpConfig, credentials: Credentials, operation: str, params: dict[str, Any]
) -> dict[str, Any]:
    """The answer of a SageMaker operation. Raises TerminalError with the operation's error."""
    response = send(
        config,
        credentials,
        "POST",
        "/",
        headers={
            "X-Hostelry-Account": credentials.account_id,
            "X-Hostelry-Region": credentials.region,
            "X-Hostelry-Service": "sagemaker",
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        },
        content=msgspec.json.encode(params),
    )
    found = document(response)
    if response.status_code != 200:
        raise TerminalError(str(found.get("message") or found.get("Message") or response.text))
    return found


def status_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every target's capacity and bounds, and its last decision."""
    if not targets:
        return [NOTHING]
    rows = [["TARGET", "SERVING", "WANTED", "BOUNDS", "STATUS", "POLICIES", "SUSPENDED"]]
    rows += [target_row(it) for it in targets]
    lines = columns(rows)
    for target in targets:
        lines += [f"{target['resource_id']}: {text}" for text in reasons(target)]
    return lines


def target_row(target: Mapping[str, Any]) -> list[str]:
    """The cells of one target."""
    return [
        target["resource_id"],
        number(target["serving"]),
        number(target["desired"]),
        f"{target['min']} to {target['max']}",
        target["status"] or "(deleted)",
        ", ".join(it["name"] for it in target["policies"]) or "-",
        ", ".join(name for name, is_on in target["suspended"].items() if is_on) or "-",
    ]


def reasons(target: Mapping[str, Any]) -> list[str]:
    """The last decision, why the capacity differs from the desired one, and the next schedules."""
    last = target["last_decision"]
    found = [] if last is None else [f"{clock_text(last['at'])} {last['text']}"]
    if target["problem"]:
        found.append(target["problem"])
    if target.get("responsive"):
        found.append(f"responsive, concurrency per copy {target['responsive']}")
    for action in target["schedules"]:
        at = action["next_at"]
        following = "never again" if at is None else f"next {clock_text(at)}"
        found.append(
            f"scheduled action {action['name']}: {action['schedule']} {action['timezone']}, "
            f"{following}"
        )
    return found


def explained_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of `hostelry explain`: reasons of each target's capacity, and its last activity."""
    lines: list[str] = []
    for target in targets:
        numbers = f"{number(target['serving'])} of {number(target['desired'])} serve"
        bounds = f"{target['min']} to {target['max']} allowed"
        lines.append(f"scaled {target['resource_id']}: {numbers}, {bounds}")
        lines += [f"    {text}" for text in reasons(target)]
        acts = [act for act in target["activities"] if not act["not_scaled"]]
        for act in acts[:1]:
            head = f"    {clock_text(act['started_at'])} {act['from']} -> {act['to']}"
            lines.append(f"{head} {act['status']}  {receipt_text(act['receipt'])}".rstrip())
            lines.append(f"      {act['cause']}")
    return [*lines, ""] if lines else []


def policy_lines(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every policy with its alarms and their states."""
    if not targets:
        return [NOTHING]
    lines: list[str] = []
    for target in targets:
        lines.append(target["resource_id"])
        for policy in target["policies"]:
            lines.append(f"  {policy['name']}  {policy_text(policy)}")
            for alarm in policy["alarms"]:
                lines.append(f"    {alarm['state'] or '(gone)'}  {alarm['name']}")
                lines += [f"      {alarm['reason']}"] if alarm["reason"] else []
        lines += [] if target["policies"] else ["  no policies"]
    return lines


def policy_text(policy: Mapping[str, Any]) -> str:
    """A policy in a few words."""
    tracking, stepping = policy["tracking"], policy["stepping"]
    if tracking is not None:
        metric = tracking["predefined"] or "a customized metric"
        text = f"keeps {metric} at {tracking['target_value']:g}"
        text += f", cooldowns {tracking['scale_out_cooldown_s']:g} s out"
        text += f" and {tracking['scale_in_cooldown_s']:g} s in"
        return text + (", never scales in" if tracking["disable_scale_in"] else "")
    steps, cooldown_s = len(stepping["steps"]), stepping["cooldown_s"]
    return f"{steps} steps of {stepping['adjustment']}, cooldown {cooldown_s:g} s"


def activity_lines(targets: Sequence[Mapping[str, Any]], *, not_scaled: bool) -> list[str]:
    """Every target's activities, newest first. `not_scaled` adds decisions without a change."""
    lines: list[str] = []
    for target in targets:
        shown = [it for it in target["activities"] if not_scaled or not it["not_scaled"]]
        lines.append(f"{target['resource_id']}" + ("" if shown else ": no activities"))
        for act in shown:
            change = ", ".join(act["not_scaled"]) or f"{act['from']} -> {act['to']}"
            head = f"  {clock_text(act['started_at'])}  {act['status']}  {change}"
            lines.append(f"{head}  {receipt_text(act['receipt'])}".rstrip())
            lines += [f"      {act['cause']}", f"      {act['status_message']}"]
    return lines or [NOTHING]


def number(value: int | None) -> str:
    """A number as text, or "-" for None."""
    return "-" if value is None else str(value)
