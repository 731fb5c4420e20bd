"""`hostelry compare`: whether one version of an endpoint is worse than another."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.cli.completion import names
from hostelry.cli.control_requests import send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.server.home import Credentials, UpConfig

PATH = "/internal/comparison"
LOOK_EVERY_S = 1.0
EXIT_CODES = {"no worse": 0, "worse": 1, "undecided": 3}  # 2 is wrong usage
US_PER_MS = 1000.0


def compare(  # noqa: PLR0913 - a command's options
    endpoint: Annotated[
        str, typer.Argument(help="The endpoint's name.", autocompletion=names.endpoints)
    ],
    old: Annotated[
        str,
        typer.Argument(
            help="The variant or component that is good.", autocompletion=names.versions
        ),
    ],
    new: Annotated[
        str, typer.Argument(help="The one that may be worse.", autocompletion=names.versions)
    ],
    errors: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How many more requests may end in errors.")
    ] = 0.01,
    latency: Annotated[
        float, typer.Option(min=0.0, help="How much longer p50 and p95 may be, as a share.")
    ] = 0.25,
    alpha: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="The probability of a wrong verdict, at most.")
    ] = 0.01,
    divergence: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="The share of a shadow's answers that may differ."),
    ] = None,
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

    Answers of a shadow variant are compared with production's to the same requests. They differ
    where anything but a number differs, or a number by more than a thousandth. It decides with
    --divergence alone.

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
    if divergence is not None:
        asked["divergence"] = f"{divergence!r}"
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
    rows += _divergence_rows(found.get("divergence"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [f"{new} against {old}: {found['outcome']}", *table]


def _divergence_rows(found: Mapping[str, Any] | None) -> list[list[str]]:
    """The rows of answers to the same requests; none where none were compared."""
    if found is None:
        return []
    of = f"of {found['pairs']} pairs, {found['exact']} equal"
    differing, median = (found[it] for it in ("differing", "distance_p50"))
    return [
        ["answers differ", of, _bounded(differing, "%", 100), found["outcome"] or ""],
        ["distance p50", "", _bounded(median, "", 1), ""],
    ]


def _side(measure: Mapping[str, Any], who: str) -> str:
    """What was seen of a version, and between which bounds it is."""
    if measure["measure"] == "errors":
        return _bounded(measure[who], "%", 100)
    return _bounded(measure[who], "ms", 1 / US_PER_MS)


def _bounded(side: Mapping[str, float | None], unit: str, factor: float) -> str:
    def text(value: float | None) -> str:
        if value is None:
            return "?"
        return f"{value * factor:.3g}" if unit == "ms" else f"{value * factor:.2f}"

    seen = f"{text(side['seen'])} {unit}".rstrip()
    return f"{seen} [{text(side['low'])}, {text(side['high'])}]"
