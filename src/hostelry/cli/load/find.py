"""`hostelry load --find`: its options, its progress and its result."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import CLEAR_LINE, one_line, printable
from hostelry.cli.load.result import error_lines, progress_line
from hostelry.cli.status_text import columns, number_text
from hostelry.loadtest.search import (
    LimitedMeasure,
    SearchCause,
    SearchLimits,
    SearchOutcome,
    SearchSettings,
    SearchStep,
    find_percentile_ms,
    get_errors_percent,
)
from hostelry.loadtest.tally import (
    LoadTally,
    client_limits,
    join_tallies,
    result_document,
    spread_ms,
)

MAX_CONCURRENCY = 256
STEP_S = 20.0
PERCENTILE = 95.0
LEAST_MS = 0.001
FindOption = Annotated[
    bool,
    typer.Option("--find", help="Find the highest concurrency at which the limits below hold."),
]
MaxLatencyOption = Annotated[
    float | None,
    typer.Option(min=LEAST_MS, help="With --find: limit of the latency of whole answers."),
]
MaxFirstTokenOption = Annotated[
    float | None,
    typer.Option(min=LEAST_MS, help="With --find: limit of the time to an LLM's first token."),
]
MaxTokenOption = Annotated[
    float | None,
    typer.Option(min=LEAST_MS, help="With --find: limit of the time between tokens."),
]
MaxErrorsOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=100.0,
        help="With --find: limit of failed requests. Default: 0",
        show_default=False,
    ),
]
PercentileOption = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        max=100.0,
        help="With --find: percentile of the times that the limits are for. Default: 95",
        show_default=False,
    ),
]


class FindOptions(msgspec.Struct, frozen=True):
    """The options of --find, as they were given. None: not given."""

    max_latency_ms: float | None
    max_first_token_ms: float | None
    max_token_ms: float | None
    max_errors_percent: float | None
    percentile: float | None

    @property
    def given(self) -> dict[str, float]:
        """The given options by flag."""
        values = {
            "--max-latency-ms": self.max_latency_ms,
            "--max-first-token-ms": self.max_first_token_ms,
            "--max-token-ms": self.max_token_ms,
            "--max-errors-percent": self.max_errors_percent,
            "--percentile": self.percentile,
        }
        return {flag: value for flag, value in values.items() if value is not None}

    @property
    def as_json(self) -> dict[str, float]:
        """The given options by name, for a result."""
        return {flag[2:].replace("-", "_"): value for flag, value in self.given.items()}

    @property
    def limits(self) -> SearchLimits:
        """The limits of the search."""
        return SearchLimits(
            latency_ms=self.max_latency_ms,
            first_token_ms=self.max_first_token_ms,
            token_ms=self.max_token_ms,
            errors_percent=self.max_errors_percent or 0.0,
            percentile=PERCENTILE if self.percentile is None else self.percentile,
        )


def check_find_options(options: FindOptions, rate: float | None, *, finds: bool) -> None:
    """Raise UsageError if the options do not fit together."""
    given = options.given
    if not finds:
        if given:
            flag = next(iter(given))
            kind = "a limit" if flag.startswith("--max") else "an option"
            raise UsageError(f"{flag} is {kind} of --find: add --find")
        return
    if rate is not None:
        raise UsageError("--find and --rate exclude each other: --find looks for a concurrency")
    if not given.keys() - {"--percentile"}:
        raise UsageError(
            "--find needs a limit: --max-latency-ms, --max-first-token-ms, --max-token-ms or "
            "--max-errors-percent"
        )
    for flag, value in given.items():
        if not isfinite(value):
            raise UsageError(f"{flag} {value:g}: expected a finite number")


def check_tokens(options: FindOptions, *, streams_text: bool) -> None:
    """Raise TerminalError if tokens have a limit and the answers have none."""
    if streams_text:
        return
    for flag in ("--max-first-token-ms", "--max-token-ms"):
        if flag in options.given:
            raise TerminalError(f"{flag}: the answer has no tokens. Use --max-latency-ms")


def show_search_progress(
    concurrency: int, tally: LoadTally, elapsed_s: float, in_flight: int
) -> None:
    """Show the state of a running step on a terminal."""
    if sys.stderr.isatty():
        line = progress_line(tally, elapsed_s, in_flight)
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.write(f"concurrency {concurrency}: {line}")
        sys.stderr.flush()


def show_step(step: SearchStep) -> None:
    """Print a line about a step that ended, on standard error."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
    rate = number_text(step.throughput)
    typer.echo(f"concurrency {step.concurrency}: {rate} requests/s, {verdict(step)}", err=True)


def verdict(step: SearchStep) -> str:
    """The judgement on a step, in some words."""
    if step.broken:
        text = ", ".join(measure_text(it) for it in step.broken)
    else:
        text = "holds" if step.holds else "no answers"
    return text if step.is_stable else f"{text} (unstable)"


def measure_text(measure: LimitedMeasure) -> str:
    """A measure and its limit."""
    unit = measure.unit
    if measure.value is None:
        return f"{measure.name} was not measured"
    value = f"{number_text(measure.value)} {unit}"
    sign = "<=" if measure.holds else ">"
    return f"{measure.name} {value} {sign} {number_text(measure.limit)} {unit}"


def search_document(
    settings: SearchSettings,
    steps: Sequence[SearchStep],
    outcome: SearchOutcome,
    result: Mapping[str, Any],
) -> dict[str, Any]:
    """The result of a search as JSON values: the measures of the best step, and `search`."""
    limits = settings.limits
    return {
        **result,
        "search": {
            "concurrency": None if outcome.best is None else outcome.best.concurrency,
            "limited_by": outcome.cause.value,
            "reasons": list(outcome_lines(outcome, settings, steps)),
            "percentile": limits.percentile,
            "steps": [step_document(it, limits.percentile) for it in sort_steps(steps)],
        },
    }


def best_tally(outcome: SearchOutcome) -> LoadTally:
    """The measures at the concurrency that was found. Empty if none was found."""
    return join_tallies(()) if outcome.best is None else outcome.best.measured


def step_document(step: SearchStep, percentile: float) -> dict[str, Any]:
    """A step as JSON values."""
    share = percentile / 100
    shown = result_document(step.measured, "", {}, "")
    kept = ("measured_s", "requests", "ok", "requests_per_s", "tokens_per_s", "errors")
    measured: dict[str, Any] = {}
    for name, seconds in samples(step.measured).items():
        spread, value = spread_ms(seconds), find_percentile_ms(seconds, share)
        if spread is not None and value is not None:
            spread = {f"p{percentile:g}": round(value, 3), **spread}
        measured[name] = spread
    return {
        "concurrency": step.concurrency,
        "holds": step.holds,
        "stable": step.is_stable,
        "windows": len(step.windows),
        "spread": round(step.spread, 4),
        **{name: shown[name] for name in kept},
        **measured,
        "limits": [
            {
                "measure": one.name,
                "unit": one.unit,
                "limit": one.limit,
                "value": None if one.value is None else round(one.value, 3),
                "in_windows": [round(value, 3) for value in one.in_windows],
                "holds": one.holds,
            }
            for one in step.limited
        ],
        "warnings": client_limits(step.measured),
    }


def samples(tally: LoadTally) -> dict[str, Sequence[float]]:
    """The samples of the latencies by name in a result, in seconds."""
    return {
        "latency_ms": tally.latencies,
        "first_token_ms": tally.first,
        "inter_token_ms": tally.gaps,
    }


def search_lines(
    target: str, settings: SearchSettings, steps: Sequence[SearchStep], outcome: SearchOutcome
) -> list[str]:
    """The result of a search: the answer, its reason, and a table of the steps."""
    lines = [printable(f"{target}: {line}") for line in head_lines(outcome)]
    lines += [one_line(it) for it in outcome_lines(outcome, settings, steps)]
    if not steps:
        return lines
    errors = join_tallies(it.measured for it in steps)
    failed = {"errors": errors.errors, "error_texts": errors.error_texts}
    return [*lines, "", *columns(table_rows(settings, steps)), "", *error_lines(failed)]


def head_lines(outcome: SearchOutcome) -> Iterator[str]:
    """The answer in one line."""
    best = outcome.best
    if best is None:
        yield "no concurrency was found at which the limits hold"
        return
    tokens = best.measured.num_tokens / (best.measured.measured_s or 1.0)
    tokens_text = f", {number_text(tokens)} tokens/s" if tokens else ""
    yield (
        f"the limits hold at concurrency {best.concurrency}: {number_text(best.throughput)} "
        f"requests/s (+-{best.spread:.1%}){tokens_text}"
    )


def outcome_lines(
    outcome: SearchOutcome, settings: SearchSettings, steps: Sequence[SearchStep]
) -> Iterator[str]:
    """Sentences about the reason why no higher concurrency is the answer."""
    best, broken = outcome.best, outcome.broken
    if best is not None:
        yield from (f"There {window_text(it)}." for it in best.limited if it.unit == "ms")
    if broken is not None and outcome.cause is not SearchCause.NO_ANSWERS:
        seen = " and ".join(measure_text(it) for it in broken.broken) or "there were no answers"
        yield f"A limit is broken at concurrency {broken.concurrency}: {seen}."
    if outcome.cause is SearchCause.CLIENT:
        limited = broken or best
        yield "This client limits the load, so the model may serve more."
        yield from client_limits(limited.measured) if limited else ()
    if outcome.cause is SearchCause.THROUGHPUT and best is not None:
        yield (
            f"Throughput does not grow above concurrency {best.concurrency}: more requests only "
            f"wait. The limits also hold at concurrency {steps[-1].concurrency}."
        )
    if outcome.cause is SearchCause.UPPER_BOUND:
        bound = settings.max_concurrency
        yield f"The search ends at concurrency {bound}. A higher --concurrency raises this bound."
    if outcome.cause is SearchCause.NO_ANSWERS:
        yield f"No request was answered at concurrency {steps[-1].concurrency}."
    if outcome.cause is SearchCause.INTERRUPTED:
        yield "The search was ended early. Higher concurrencies were not measured."


def window_text(measure: LimitedMeasure) -> str:
    """A measure, its range over the windows, and its limit."""
    low, high = (number_text(it(measure.in_windows, default=0.0)) for it in (min, max))
    value, unit = number_text(measure.value), measure.unit
    return (
        f"{measure.name} is {value} {unit} ({low} to {high} {unit} in its windows, limit "
        f"{number_text(measure.limit)} {unit})"
    )


def table_rows(settings: SearchSettings, steps: Sequence[SearchStep]) -> Iterator[Sequence[str]]:
    """The steps as a table, by concurrency."""
    percentile = settings.limits.percentile
    suffix, share = f"p{percentile:g}", percentile / 100
    has_tokens = any(it.measured.num_tokens for it in steps)
    heads = ["CONCURRENCY", "REQ/S", "+-", "LATENCY P50", suffix.upper(), "ERRORS", "VERDICT"]
    if has_tokens:
        heads[3:3] = ["TOKENS/S"]
        heads[-2:-2] = [f"FIRST TOKEN {suffix.upper()}", f"INTER-TOKEN {suffix.upper()}"]
    yield heads
    for step in sort_steps(steps):
        tally = step.measured
        row = [
            str(step.concurrency),
            number_text(step.throughput),
            f"{step.spread:.1%}",
            milliseconds(tally.latencies, 0.5),
            milliseconds(tally.latencies, share),
            f"{number_text(get_errors_percent(tally))} %",
            verdict(step),
        ]
        if has_tokens:
            row[3:3] = [number_text(tally.num_tokens / (tally.measured_s or 1.0))]
            row[-2:-2] = [milliseconds(tally.first, share), milliseconds(tally.gaps, share)]
        yield row


def sort_steps(steps: Sequence[SearchStep]) -> list[SearchStep]:
    """The steps by concurrency, and steps of one concurrency in the order of their times."""
    return sorted(steps, key=lambda it: it.concurrency)


def milliseconds(seconds: Sequence[float], share: float) -> str:
    """A percentile as text."""
    value = find_percentile_ms(seconds, share)
    return "-" if value is None else f"{number_text(value)} ms"
