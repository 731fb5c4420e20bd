"""Backlog of load that control has not taken yet: sent in order, each once, bounded."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from hostelry.dataplane.metering.meter import ClosedSeconds
from hostelry.domain.load import LoadKey, LoadReport, SecondLoad
from hostelry.domain.load_sums import one_after_the_other

MAX_LOADS = 20_000  # seconds of a name, some 20 MB
MAX_LOADS_A_REPORT = 5_000
MAX_SPANS = 300


class LoadBacklog:
    """The reports of one process of a worker.

    Above `max_loads` the older half is merged into one second: every request stays counted, the
    times get coarser.

    Args:
        worker: its name.
        started_at: start of the process, in seconds since the epoch.
        max_loads: how many seconds of names may wait.
    """

    def __init__(self, worker: str, started_at: float, max_loads: int = MAX_LOADS) -> None:
        self._worker = worker
        self._started_at = started_at
        self._max_loads = max_loads
        self._spans: deque[ClosedSeconds] = deque()
        self._sequence = 0
        self._under_way: LoadReport | None = None

    @property
    def num_loads(self) -> int:
        """Seconds of names that wait, those of the report under way not counted."""
        return sum(len(it.loads) for it in self._spans)

    def add(self, spans: Iterable[ClosedSeconds]) -> None:
        """Keep closed seconds until they are delivered."""
        for span in spans:
            last = self._spans[-1] if self._spans else None
            if last is None or last.through + 1 != span.first:
                self._spans.append(span)
            else:
                self._spans[-1] = _span((last, span))
        if self.num_loads > self._max_loads or len(self._spans) > MAX_SPANS:
            self._compact()

    def report(self) -> LoadReport | None:
        """The report to send: the same until it is `delivered`; None without a backlog."""
        if self._under_way is None and self._spans:
            span = self._cut(self._spans.popleft())
            self._sequence += 1
            self._under_way = LoadReport(
                worker=self._worker,
                started_at=self._started_at,
                sequence=self._sequence,
                seconds=span.loads,
                first=span.first,
                through=span.through,
            )
        return self._under_way

    def delivered(self) -> None:
        """Drop the report: control has taken it, or never will."""
        self._under_way = None

    def _cut(self, span: ClosedSeconds) -> ClosedSeconds:
        """The beginning of `span`, whole seconds; the rest waits."""
        if len(span.loads) <= MAX_LOADS_A_REPORT or span.first == span.through:
            return span
        last = min(span.loads[MAX_LOADS_A_REPORT].second, span.through)
        until = max(last, span.first + 1)
        now = tuple(it for it in span.loads if it.second < until)
        rest = tuple(it for it in span.loads if it.second >= until)
        self._spans.appendleft(ClosedSeconds(first=until, through=span.through, loads=rest))
        return ClosedSeconds(first=span.first, through=until - 1, loads=now)

    def _compact(self) -> None:
        """Make one second of the older half of what waits, at its end."""
        loads = [load for span in self._spans for load in span.loads]
        first, through = self._spans[0].first, self._spans[-1].through
        half = loads[: len(loads) // 2]
        at = half[-1].second if half else first
        merged: dict[LoadKey, SecondLoad] = {}
        for load in (it for it in loads if it.second <= at):
            known = merged.get(load.key)
            both = load if known is None else one_after_the_other(known, load)
            merged[load.key] = replace(both, second=at)
        rest = [it for it in loads if it.second > at]
        self._spans.clear()
        self._spans.append(
            ClosedSeconds(first=at, through=max(at, through), loads=(*merged.values(), *rest))
        )


def _span(spans: tuple[ClosedSeconds, ClosedSeconds]) -> ClosedSeconds:
    one, other = spans
    return ClosedSeconds(first=one.first, through=other.through, loads=(*one.loads, *other.loads))
