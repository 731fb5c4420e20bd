"""The stretch of time that is used, and the holes in the records around it. PURE.

A period without a record is a hole: nothing is known of it, and it is never taken for a period
without calls. The longest stretch without a hole in the records of any model is used.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import numpy as np

from hostelry.advisor.live.records import LiveRecords, RecordedModel, Series
from hostelry.base.errors import TerminalError
from hostelry.base.printable import short_number

LEAST_S = 180.0  # the shortest time that a mix is simulated for
MAX_S = 168 * 3600.0
MAX_MODEL_S = 1000 * 3600.0  # models times seconds that are simulated
MAX_CALLS = 1_000_000
MAX_SPANS, MAX_NAMES = 3, 5


class Span(msgspec.Struct, frozen=True):
    """A time from `since` to `until`, in seconds since the epoch."""

    since: float
    until: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.until - self.since

    def select(self, series: Series) -> Series:
        """The part of a series in this time."""
        return {at: it for at, it in series.items() if self.since <= at < self.until}


def find_stretch(records: LiveRecords) -> tuple[Span, tuple[str, ...]]:
    """The time to use, and notes on everything that is not used.

    Raises TerminalError if no stretch is long enough.
    """
    if not records.models:
        raise TerminalError("no endpoint has a model whose records can be used")
    notes = [f"endpoint {name} is left out: {why}" for name, why in records.left_out.items()]
    notes += _list_holes(records)
    period_s = records.period_s
    common = set.intersection(*(set(it.records.calls) for it in records.models))
    spans = list(_list_spans(sorted(common), period_s))
    longest = max(spans, key=lambda it: it.seconds, default=Span(0.0, 0.0))
    if longest.seconds < LEAST_S:
        raise TerminalError(
            f"the longest time with records of all {len(records.models)} models has "
            f"{longest.seconds:.0f} s; {LEAST_S:.0f} s are needed. {'; '.join(notes[:MAX_NAMES])}. "
            "Wait, or name endpoints that served at the same time with --endpoint"
        )
    used = _cut_busiest(records, longest)
    if used != longest:
        notes.append(
            f"the busiest {short_number(used.seconds / 3600)} h are used, from "
            f"{show_instant(used.since)} on: more than {MAX_MODEL_S / 3600:,.0f} h times "
            f"models, or {MAX_CALLS:,} calls, are not simulated"
        )
    return used, tuple(notes)


def _list_holes(records: LiveRecords) -> Iterator[str]:
    """A note for each group of models with the same holes."""
    count = round((records.until - records.since) / records.period_s)
    periods = [records.since + records.period_s * it for it in range(count)]
    groups: dict[tuple[Span, ...], list[RecordedModel]] = {}
    for model in records.models:
        missing = [it for it in periods if it not in model.records.calls]
        groups.setdefault(tuple(_list_spans(missing, records.period_s)), []).append(model)
    for spans, models in groups.items():
        if not spans:
            continue
        names = ", ".join(it.live_name for it in models[:MAX_NAMES])
        more = f" and {len(models) - MAX_NAMES:,} more" if len(models) > MAX_NAMES else ""
        shown = ", ".join(
            f"{show_instant(span.since)} to {show_instant(span.until)}"
            for span in spans[:MAX_SPANS]
        )
        others = f" and {len(spans) - MAX_SPANS:,} more times" if len(spans) > MAX_SPANS else ""
        yield f"no records of {names}{more} from {shown}{others}: these times are not used"


def _list_spans(periods: Sequence[float], period_s: float) -> Iterator[Span]:
    """The spans that sorted periods cover."""
    if not periods:
        return
    since = periods[0]
    for one, following in pairwise(periods):
        if following - one > 1.5 * period_s:
            yield Span(since, one + period_s)
            since = following
    yield Span(since, periods[-1] + period_s)


def _cut_busiest(records: LiveRecords, span: Span) -> Span:
    """The part with most calls that is short enough to be simulated."""
    period_s = records.period_s
    count = round(span.seconds / period_s)
    at = span.since + period_s * np.arange(count)
    calls = [sum(one.get(it, 0.0) for one in _list_calls(records)) for it in at.tolist()]
    passed = np.concatenate([[0.0], np.cumsum(calls)])
    most_s = min(MAX_S, MAX_MODEL_S / len(records.models))
    length = min(count, int(most_s / period_s))
    sums = passed[length:] - passed[:-length]
    while length * period_s > 2 * LEAST_S and sums.max() > MAX_CALLS:
        length //= 2
        sums = passed[length:] - passed[:-length]
    since = float(at[int(sums.argmax())])
    return Span(since, since + length * period_s)


def _list_calls(records: LiveRecords) -> list[Series]:
    """The calls of each name. The models of one multi-model endpoint share one."""
    return list({id(it.records): it.records.calls for it in records.models}.values())


def show_instant(at: float) -> str:
    """An instant in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
