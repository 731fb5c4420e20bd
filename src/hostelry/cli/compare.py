"""`hostelry compare`: whether one version of an endpoint is worse than another."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.server.home import Credentials, UpConfig

PATH = "/internal/comparison"
LOOK_EVERY_S = 1.0
EXIT_CODES = {"no worse": 0, "worse": 1, "undecided": 2}
US_PER_MS = 1000.0


def compare(  # noqa: PLR0913 - a command's options
    endpoint: Annotated[str, typer.Argument(help="The endpoint's name.")],
    old: Annotated[str, typer.Argument(help="The variant or component that is good.")],
    new: Annotated[str, typer.Argument(help="The one that may be worse.")],
    errors: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How many more requests may end in errors.")
    ] = 0.01,
    latency: Annotated[
        float, typer.Option(min=0.0, help="How much longer p50 and p95 may be, as a share.")
    ] = 0.25,
    alpha: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="The probability of a wrong verdict, at most.")
    ] = 0.01,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0.0, help="Look for so many seconds, until decided.")
    ] = 0.0,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether NEW is worse than OLD in errors or latency, from their live requests.

    The verdict may be looked at any time: it counts requests from a minute before the first look
    on, and is wrong with probability alpha at most however often one looks. Errors are the model's
    5xx answers, none at all, and broken streams.

    Exit code 0: no worse. 1: worse. 2: undecided, as there were too few requests.

    Example: hostelry compare shop blue green --wait 60
    """
    config, credentials = settled(home_at(home))
    asked = {
        "endpoint": endpoint,
        "old": old,
        "new": new,
        "errors": f"{errors!r}",
        "latency": f"{latency!r}",
        "alpha": f"{alpha!r}",
    }
    until_s = monotonic_s() + wait_s
    while True:
        found = comparison(config, credentials, asked)
        left_s = until_s - monotonic_s()
        if found["outcome"] != "undecided" or left_s <= 0:
            break
        time.sleep(min(LOOK_EVERY_S, left_s))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(comparison_lines(old, new, found)))
    raise typer.Exit(EXIT_CODES[found["outcome"]])


def comparison(
    config: UpConfig, credentials: Credentials, asked: Mapping[str, str]
) -> dict[str, Any]:
    """Control's verdict; raises TerminalError where a name is unknown."""
    answer = send(config, credentials, "GET", PATH, knows="of comparisons", params=dict(asked))
    if answer.status_code != 200:
        raise TerminalError(f"nothing is compared: {answer.text}")
    found: dict[str, Any] = answer.json()
    return found


def comparison_lines(old: str, new: str, found: Mapping[str, Any]) -> list[str]:
    """The verdict in words, and a table of the measures, with their bounds in brackets."""
    requests = found["requests"]
    rows = [["", f"{old} ({requests['old']} requests)", f"{new} ({requests['new']})", ""]]
    rows += [
        [measure["measure"], *(_side(measure, who) for who in ("old", "new")), measure["outcome"]]
        for measure in found["measures"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [f"{new} against {old}: {found['outcome']}", *table]


def _side(measure: Mapping[str, Any], who: str) -> str:
    """What was seen of a version, and between which bounds it is."""
    is_share, side = measure["measure"] == "errors", measure[who]

    def text(value: float | None) -> str:
        if value is None:
            return "?"
        return f"{value * 100:.2f}" if is_share else f"{value / US_PER_MS:.3g}"

    unit = "%" if is_share else "ms"
    return f"{text(side['seen'])} {unit} [{text(side['low'])}, {text(side['high'])}]"
