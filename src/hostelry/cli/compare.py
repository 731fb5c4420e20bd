"""`hostelry compare`: decide whether one version of an endpoint is worse than another."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.printable import short_number
from hostelry.cli import completion as names
from hostelry.cli.control_requests import send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import columns
from hostelry.home.home import Credentials, UpConfig

PATH = "/internal/comparison"
LOOK_EVERY_S = 1.0
EXIT_CODES = {"no worse": 0, "worse": 1, "undecided": 3}  # typer uses 2 for wrong usage
US_PER_MS = 1000.0


def compare(  # noqa: PLR0913 - a command's options
    endpoint: Annotated[
        str, typer.Argument(help="Name of the endpoint.", autocompletion=names.endpoints)
    ],
    old: Annotated[
        str,
        typer.Argument(
            help="Current version: a variant or component.", autocompletion=names.versions
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(
            help="Candidate version: a variant or component.", autocompletion=names.versions
        ),
    ],
    errors: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Allowed increase of the share of requests that fail."),
    ] = 0.01,
    latency: Annotated[
        float, typer.Option(min=0.0, help="Allowed increase of p50 and p95 latency, as a share.")
    ] = 0.25,
    alpha: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="Maximum probability of a wrong verdict.")
    ] = 0.01,
    divergence: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Allowed share of shadow answers that differ."),
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0.0, help="Maximum number of seconds to observe.")
    ] = 0.0,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide from live requests whether NEW is worse than OLD in errors or latency.

    The command counts requests from a minute before its first run. It can be run any number of
    times: the verdict is wrong with probability alpha at most. Errors are 5xx answers of the model,
    missing answers and broken streams.

    Answers of a shadow variant are compared with production's answers to the same requests. Two
    answers differ if anything but a number differs, or if a number differs by more than a
    thousandth. This decides the verdict only with --divergence.

    Exit code 0: not worse. 1: worse. 2: undecided, because there were too few requests.

    Example: hostelry compare shop blue green --wait 60
    """
    config, credentials = load_home(home_at(home))
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
    """Control's verdict. Raises TerminalError if a name is unknown."""
    answer = send(config, credentials, "GET", PATH, knows="of comparisons", params=dict(asked))
    if answer.status_code != 200:
        raise TerminalError(f"nothing is compared: {answer.text}")
    found: dict[str, Any] = answer.json()
    return found


def comparison_lines(old: str, new: str, found: Mapping[str, Any]) -> list[str]:
    """The verdict in words, and a table of the measures. Confidence bounds are in brackets."""
    requests = found["requests"]
    rows = [["", f"{old} ({requests['old']} requests)", f"{new} ({requests['new']})", ""]]
    rows += [
        [measure["measure"], *(_side(measure, who) for who in ("old", "new")), measure["outcome"]]
        for measure in found["measures"]
    ]
    rows += _divergence_rows(found.get("divergence"))
    return [f"{new} against {old}: {found['outcome']}", *columns(rows)]


def _divergence_rows(found: Mapping[str, Any] | None) -> list[list[str]]:
    """The rows about answers to the same requests. Empty if no answers were compared."""
    if found is None:
        return []
    of = f"of {found['pairs']} pairs, {found['exact']} equal"
    differing, median = (found[it] for it in ("differing", "distance_p50"))
    return [
        ["answers differ", of, _bounds_text(differing, "%", 100), found["outcome"] or ""],
        ["distance p50", "", _bounds_text(median, "", 1), ""],
    ]


def _side(measure: Mapping[str, Any], who: str) -> str:
    """The measured value of a version, and its confidence bounds."""
    if measure["measure"] == "errors":
        return _bounds_text(measure[who], "%", 100)
    return _bounds_text(measure[who], "ms", 1 / US_PER_MS)


def _bounds_text(side: Mapping[str, float | None], unit: str, factor: float) -> str:
    def text(value: float | None) -> str:
        if value is None:
            return "?"
        return short_number(value * factor) if unit == "ms" else f"{value * factor:.2f}"

    seen = f"{text(side['seen'])} {unit}".rstrip()
    return f"{seen} [{text(side['low'])}, {text(side['high'])}]"
