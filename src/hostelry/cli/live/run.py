"""The steps of `hostelry fit --from-live` and `--against-live`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.advisor.live.calls import build_trace, draw_calls
from hostelry.advisor.live.forecast import LivePrices, UnitComparison, compare_units
from hostelry.advisor.live.mix_text import build_mix_text
from hostelry.advisor.live.records import LiveRecords
from hostelry.advisor.live.stretch import Span, find_stretch
from hostelry.advisor.traffic import DrawnCalls
from hostelry.advisor.values import FitMix
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.home_option import home_at, load_home
from hostelry.cli.live.reading import LiveReading, PlatformSource, find_period
from hostelry.cost.period import find_period as find_hours
from hostelry.cost.prices import PriceList, get_price_per_hour
from hostelry.home.price_file import load_prices
from hostelry.sim.trace import write_trace

Progress = Callable[[str], None]
USUAL_LAST = "7d"


class LiveInput(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a platform, the time of them that is used, and notes on the rest."""

    records: LiveRecords
    span: Span
    notes: tuple[str, ...]
    calls: Mapping[str, DrawnCalls]
    prices: PriceList | None


def read_input(
    home: Path | None, endpoints: Sequence[str], last: str | None, progress: Progress
) -> LiveInput:
    """Read the platform's records. Raises TerminalError if they are too few."""
    place = home_at(home)
    running = load_home(place)
    now = SystemClock().now()
    since = find_hours(None, None, last or USUAL_LAST, now).since
    reading = LiveReading(
        AwsAtPlatform(*running), PlatformSource(*running), running[1].role_arn, progress
    )
    records = reading.read(endpoints, find_period(since, now))
    span, notes = find_stretch(records)
    return LiveInput(
        records=records,
        span=span,
        notes=notes,
        calls=draw_calls(records, span),
        prices=load_prices(place.prices),
    )


def write_files(live: LiveInput, prices: PriceList | None, to: Path) -> None:
    """Write the mix, and its calls next to it. Raises TerminalError if a file exists already."""
    trace = to.with_suffix(".csv")
    for path in (to, trace):
        if path.exists():
            raise TerminalError(
                f"{path} exists, and may have been edited: name another file with --out, or "
                "remove it"
            )
    known = prices or live.prices
    types = {it.instance_type for it in live.records.units}
    per_hour = {it: None if known is None else get_price_per_hour(known, it) for it in types}
    per_gb_s = None if known is None else known.serverless_per_gb_s
    text = build_mix_text(
        live.records,
        live.span,
        live.calls,
        LivePrices(per_hour=per_hour, per_gb_s=per_gb_s),
        trace.name,
        live.notes,
    )
    write_trace(build_trace(live.calls, live.span.seconds), trace)
    try:
        write_whole(to, text.encode(), durable=False)
    except OSError as error:
        raise TerminalError(f"{to} cannot be written: {error.strerror}") from None


def compare(live: LiveInput, mix: FitMix) -> list[UnitComparison]:
    """The forecast for the deployment, with the numbers of a mix, and the measured figures."""
    return compare_units(live.records, live.span, live.calls, mix)


def build_report(live: LiveInput, compared: Sequence[UnitComparison]) -> dict[str, Any]:
    """The comparison for programs."""
    return {
        "since": live.span.since,
        "until": live.span.until,
        "notes": live.notes,
        "endpoints": compared,
    }
