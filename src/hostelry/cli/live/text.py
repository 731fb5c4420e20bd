"""The forecast and the measured figures, as text."""

from collections.abc import Callable, Iterator, Sequence

from hostelry.advisor.axes import format_s
from hostelry.advisor.live.forecast import UnitComparison, UnitFigures
from hostelry.advisor.live.stretch import show_instant
from hostelry.base.printable import short_number
from hostelry.cli.live.run import LiveInput
from hostelry.cli.status_text import columns

UNKNOWN = "unknown"
HEAD = ("", "forecast", "measured", "forecast / measured")
SAME_RECORDS = (
    "The service times of the forecast are from the same records: p50 shows that the model fits, "
    "not that it foresees."
)


def list_lines(
    live: LiveInput, compared: Sequence[UnitComparison], *, is_same: bool
) -> Iterator[str]:
    """Each endpoint's figures, with the ratio of each two.

    With `is_same` the forecast has its service times from the same records.
    """
    span = live.span
    yield (
        f"records from {show_instant(span.since)} to {show_instant(span.until)} UTC, "
        f"{short_number(span.seconds / 3600)} h"
    )
    yield from (f"note: {it}" for it in live.notes)
    if is_same:
        yield f"note: {SAME_RECORDS}"
    for one in compared:
        yield ""
        yield f"{one.endpoint}: {one.option.value}, as it runs now, simulated over these calls"
        if one.problem is not None:
            yield f"   no forecast: {one.problem}"
        yield from (f"   note: {it}" for it in one.notes)
        rows = [HEAD, *_list_rows(one.forecast, one.measured)]
        yield from (f"   {it}" for it in columns(rows))


def _list_rows(forecast: UnitFigures, measured: UnitFigures) -> Iterator[tuple[str, ...]]:
    yield _row("answers a second", forecast.calls_per_s, measured.calls_per_s, "{:.4g}".format)
    yield _row("failed", forecast.failed_share, measured.failed_share, "{:.2%}".format)
    yield _row("cost of 1,000 answers", forecast.cost, measured.cost, "{:.4g}".format)
    yield _row("p50", forecast.p50_s, measured.p50_s, format_s)
    yield _row("p99", forecast.p99_s, measured.p99_s, format_s)
    if forecast.starts is not None or measured.starts is not None:
        yield _row("cold starts", forecast.starts, measured.starts, "{:.4g}".format)


def _row(
    name: str, forecast: float | None, measured: float | None, show: Callable[[float], str]
) -> tuple[str, ...]:
    shown = [UNKNOWN if it is None else show(it) for it in (forecast, measured)]
    ratio = "-" if forecast is None or not measured else f"{forecast / measured:.3f}"
    return (name, *shown, ratio)
