"""The search for the highest concurrency at which limits of latency and errors hold. Pure.

The load runs in steps. A step has one concurrency, a warm-up, and windows that are measured until
three in a row agree, so a step near a limit has more of them. Three windows without an answer also
end a step, so that a model that is gone gets little load. The concurrency doubles until a limit is
broken, and bisection follows. A step that breaks a limit is measured again. If the two measurements
differ, a third one decides.
"""

import itertools
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from hostelry.loadtest.tally import LoadTally, client_limits, join_tallies, percentile

NUM_STABLE = 3  # windows in a row that agree
STABLE_SHARE = 0.1  # the largest distance from their mean
MAX_WINDOWS = 10  # of one step
MIN_ANSWERS = 20  # in one window
WINDOW_S = 1.0
WINDOW_SHARE = 0.1  # of the longest step, if that is less
WARM_UP_SHARE = 0.5  # of the longest step, at most
PRECISION = 0.025  # the distance between the answer and a broken limit, as a share of the answer
MIN_GROWTH = 1.05  # of throughput when the concurrency doubles
NUM_FLAT = 2  # doublings without growth that end the search
UNDECIDED = ([False], [False, True])  # one broken limit may be noise, and so may its repetition


class SearchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the answers must keep. None: no limit. Latencies are percentiles."""

    latency_ms: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None
    errors_percent: float = 0.0
    percentile: float = 95.0


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A search. `step_s` limits the time of one step, without the wait for its last answers.

    `step_requests` end a step with their window, too.
    """

    limits: SearchLimits
    max_concurrency: int
    step_s: float
    step_requests: int | None = None

    @property
    def window_s(self) -> float:
        """The shortest window, and the shortest warm-up."""
        return min(WINDOW_S, WINDOW_SHARE * self.step_s)


class LimitedMeasure(msgspec.Struct, frozen=True):
    """A measure that has a limit. Without samples it has no `value`."""

    name: str
    unit: str
    limit: float
    value: float | None
    in_windows: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """True if the measure keeps its limit."""
        return self.value is not None and self.value <= self.limit


class SearchStep(msgspec.Struct, frozen=True):
    """The windows of one concurrency, and the measures of those that count, as one window."""

    concurrency: int
    windows: tuple[LoadTally, ...]
    measured: LoadTally
    is_stable: bool
    limited: tuple[LimitedMeasure, ...]

    @property
    def holds(self) -> bool:
        """True if every limit holds."""
        return self.measured.num_ok > 0 and not self.broken

    @property
    def broken(self) -> list[LimitedMeasure]:
        """The measures that break their limit."""
        return [it for it in self.limited if not it.holds]

    @property
    def is_dead(self) -> bool:
        """True if requests failed and none was answered."""
        return self.measured.num_ok == 0 and self.measured.num_requests > 0

    @property
    def throughput(self) -> float:
        """Answered requests per second."""
        return get_throughput(self.measured)

    @property
    def spread(self) -> float:
        """The largest distance of a window's throughput from their mean, as a share of it."""
        return find_spread([get_throughput(it) for it in self.windows])


class SearchCause(StrEnum):
    """The reason why no higher concurrency is the answer."""

    LIMIT = "limit"
    CLIENT = "client"
    THROUGHPUT = "throughput"
    UPPER_BOUND = "upper bound"
    NO_ANSWERS = "no answers"
    INTERRUPTED = "interrupted"


class SearchOutcome(msgspec.Struct, frozen=True):
    """The end of a search. Without a concurrency that keeps the limits it has no `best`.

    `broken` is the lowest step that breaks a limit.
    """

    cause: SearchCause
    best: SearchStep | None
    broken: SearchStep | None


def is_window_over(
    settings: SearchSettings, concurrency: int, num_done: int, open_s: float
) -> bool:
    """True if a window has enough answers: one of each connection, and enough for percentiles."""
    return open_s >= settings.window_s and num_done >= max(MIN_ANSWERS, concurrency)


def is_warm_up_over(
    settings: SearchSettings, concurrency: int, num_done: int, open_s: float
) -> bool:
    """True if each connection had an answer, so that requests no longer begin all at once."""
    if open_s >= WARM_UP_SHARE * settings.step_s:
        return True
    return open_s >= settings.window_s and num_done >= concurrency


def is_step_over(settings: SearchSettings, windows: Sequence[LoadTally], elapsed_s: float) -> bool:
    """True if the last windows agree or are dead, or the windows, time or requests are used up."""
    if elapsed_s >= settings.step_s or len(windows) >= MAX_WINDOWS or are_dead(windows):
        return True
    most = settings.step_requests
    if most is not None and sum(it.num_requests for it in windows) >= most:
        return True
    return do_agree(settings, windows)


def do_agree(settings: SearchSettings, windows: Sequence[LoadTally]) -> bool:
    """True if the last windows are stable, and each limit holds in all of them or in none."""
    if not are_stable(windows):
        return False
    limited = measure_limits(settings.limits, windows[-NUM_STABLE:])
    return all(len({value <= it.limit for value in it.in_windows}) <= 1 for it in limited)


def are_stable(windows: Sequence[LoadTally]) -> bool:
    """True if the last windows agree in throughput and in median latency."""
    last = windows[-NUM_STABLE:]
    if len(last) < NUM_STABLE or not all(it.num_ok for it in last):
        return False
    medians = [percentile(sorted(it.latencies), 0.5) for it in last]
    rates = [get_throughput(it) for it in last]
    return max(find_spread(rates), find_spread(medians)) <= STABLE_SHARE


def are_dead(windows: Sequence[LoadTally]) -> bool:
    """True if requests failed in each of the last windows and none was answered."""
    last = windows[-NUM_STABLE:]
    return len(last) == NUM_STABLE and all(it.num_requests and not it.num_ok for it in last)


def build_step(
    settings: SearchSettings, concurrency: int, windows: Sequence[LoadTally]
) -> SearchStep:
    """Judge the windows of one concurrency. If the last three do not agree, all of them count."""
    counted = tuple(windows[-NUM_STABLE:] if do_agree(settings, windows) else windows)
    limited = measure_limits(settings.limits, counted)
    measured, is_stable = join_tallies(counted), are_stable(windows)
    return SearchStep(concurrency, counted, measured, is_stable, limited)


def measure_limits(
    limits: SearchLimits, windows: Sequence[LoadTally]
) -> tuple[LimitedMeasure, ...]:
    """Each measure that has a limit, over all windows and in each of them."""
    whole, share = join_tallies(windows), limits.percentile / 100
    suffix = f"p{limits.percentile:g}"
    found = []
    for name, field, limit in (
        ("latency", "latencies", limits.latency_ms),
        ("first token", "first", limits.first_token_ms),
        ("inter-token", "gaps", limits.token_ms),
    ):
        if limit is not None:
            values = [find_percentile_ms(getattr(it, field), share) for it in (whole, *windows)]
            each = tuple(it for it in values[1:] if it is not None)
            found.append(LimitedMeasure(f"{name} {suffix}", "ms", limit, values[0], each))
    each = tuple(get_errors_percent(it) for it in windows)
    errors = get_errors_percent(whole)
    return (*found, LimitedMeasure("errors", "%", limits.errors_percent, errors, each))


def choose_action(settings: SearchSettings, steps: Sequence[SearchStep]) -> int | SearchOutcome:
    """The concurrency of the next step, or the outcome after the steps so far."""
    if not steps:
        return 1
    last = steps[-1]
    if [it.holds for it in steps if it.concurrency == last.concurrency] in UNDECIDED:
        return last.concurrency
    best, broken = find_bounds(steps)
    if last.is_dead:
        return SearchOutcome(SearchCause.NO_ANSWERS, best, broken)
    if broken is not None:
        low = 0 if best is None else best.concurrency
        if broken.concurrency - low <= max(1.0, PRECISION * low):
            is_client = bool(client_limits(broken.measured))
            cause = SearchCause.CLIENT if is_client else SearchCause.LIMIT
            return SearchOutcome(cause, best, broken)
        return (low + broken.concurrency) // 2
    if is_flat(steps):
        cause = SearchCause.CLIENT if client_limits(last.measured) else SearchCause.THROUGHPUT
        return SearchOutcome(cause, find_knee(steps), None)
    if last.concurrency >= settings.max_concurrency:
        return SearchOutcome(SearchCause.UPPER_BOUND, best, None)
    return min(2 * last.concurrency, settings.max_concurrency)


def interrupted_outcome(steps: Sequence[SearchStep]) -> SearchOutcome:
    """The outcome of a search that was ended early."""
    return SearchOutcome(SearchCause.INTERRUPTED, *find_bounds(steps))


def find_bounds(steps: Sequence[SearchStep]) -> tuple[SearchStep | None, SearchStep | None]:
    """The highest step that keeps the limits, and the lowest above it that breaks one.

    If a concurrency was measured several times, the last measurement counts.
    """
    latest = {it.concurrency: it for it in steps}.values()
    best = max((it for it in latest if it.holds), key=lambda it: it.concurrency, default=None)
    low = 0 if best is None else best.concurrency
    above = (it for it in latest if not it.holds and it.concurrency > low)
    return best, min(above, key=lambda it: it.concurrency, default=None)


def is_flat(steps: Sequence[SearchStep]) -> bool:
    """True if the last doublings raised neither throughput nor a measure that has a limit.

    Then a higher concurrency brings nothing, and would not break a limit either.
    """
    held = sorted((it for it in steps if it.holds), key=lambda it: it.concurrency)
    last = held[-NUM_FLAT - 1 :]
    if len(last) <= NUM_FLAT:
        return False
    return all(
        after.concurrency == 2 * before.concurrency
        and after.throughput < MIN_GROWTH * before.throughput
        and not has_grown(before, after)
        for before, after in itertools.pairwise(last)
    )


def has_grown(before: SearchStep, after: SearchStep) -> bool:
    """True if a measure that has a limit is higher than the noise of windows explains."""
    pairs = zip(before.limited, after.limited, strict=True)
    return any(
        one.value is not None
        and other.value is not None
        and other.value > (1 + STABLE_SHARE) * one.value
        for one, other in pairs
    )


def find_knee(steps: Sequence[SearchStep]) -> SearchStep | None:
    """The lowest concurrency that keeps the limits and has nearly the highest throughput."""
    held = sorted((it for it in steps if it.holds), key=lambda it: it.concurrency)
    most = max((it.throughput for it in held), default=0.0)
    return next((it for it in held if MIN_GROWTH * it.throughput >= most), None)


def find_percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    """A percentile in milliseconds. None without values."""
    return percentile(sorted(seconds), share) * 1000 if seconds else None


def get_throughput(tally: LoadTally) -> float:
    """Answered requests per second."""
    return tally.num_ok / tally.measured_s if tally.measured_s else 0.0


def get_errors_percent(tally: LoadTally) -> float:
    """The share of requests that failed, in percent."""
    num_requests = tally.num_requests
    return 100 * (num_requests - tally.num_ok) / num_requests if num_requests else 0.0


def find_spread(values: Sequence[float]) -> float:
    """The largest distance of a value from the mean, as a share of the mean."""
    mean = sum(values) / len(values) if values else 0.0
    return max(abs(it - mean) for it in values) / mean if mean else 0.0
