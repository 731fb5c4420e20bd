"""The end of a step's load, and the part of it that counts as its result.

windows                                             the load
-------------------------------------------------   ---------------------------------------
the invocations per minute reach MaxInvocations     stops
two in a row are above the latency threshold        stops
two in a row have errors in more than 1 % of calls  stops
all calls of the first window failed                stops, and the step fails
three with more users have no more invocations      stops, unless FlatInvocations is Continue
any other                                           continues until the traffic is over
"""

from collections.abc import Sequence

import msgspec

from hostelry.base.printable import plain_number
from hostelry.domain.recommendation_job import BenchmarkLoad, StoppingRules

MAX_ERROR_SHARE = 0.01
NUM_BROKEN = 2  # windows in a row beyond a limit: a single one may be noise
NUM_FLAT = 3  # windows with more users and no more invocations
MIN_GROWTH = 1.05


class LoadWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A measured part of the load. Instants are in seconds since the epoch.

    `latency_ms` is the latency at the percentile of the rules, or None without an answer.
    `first_error` is the text of an error, if there was one.
    """

    num_users: int
    began_at: float
    ended_at: float
    num_ok: int
    num_failed: int = 0
    latency_ms: float | None = None
    first_error: str | None = None

    @property
    def invocations_per_minute(self) -> float:
        """Successful invocations per minute."""
        seconds = self.ended_at - self.began_at
        return 60.0 * self.num_ok / seconds if seconds > 0 else 0.0

    @property
    def has_errors(self) -> bool:
        """Whether too many calls failed."""
        return self.num_failed > MAX_ERROR_SHARE * (self.num_ok + self.num_failed)


def find_stop(windows: Sequence[LoadWindow], rules: StoppingRules) -> str | None:
    """Say why the load stops after these windows. None if it continues."""
    if not windows:
        return None
    last = windows[-1]
    if len(windows) == 1 and last.num_failed and not last.num_ok:
        return "every invocation failed"
    most = rules.max_invocations
    if most is not None and last.invocations_per_minute >= most and not last.has_errors:
        return f"MaxInvocations {most} is reached"
    recent = windows[-NUM_BROKEN:]
    if len(recent) == NUM_BROKEN:
        if all(it.has_errors for it in recent):
            return f"more than {MAX_ERROR_SHARE:.0%} of the invocations failed"
        if all(is_too_slow(it, rules) for it in recent):
            return f"{name_percentile(rules)} of the latency is above {_write_limit(rules)}"
    if rules.stops_when_flat and is_flat(windows):
        return "more users bring no more invocations"
    return None


def is_too_slow(window: LoadWindow, rules: StoppingRules) -> bool:
    """Whether a window is above the latency threshold. False without one."""
    limit_ms, latency_ms = rules.latency_ms, window.latency_ms
    return limit_ms is not None and latency_ms is not None and latency_ms > limit_ms


def is_flat(windows: Sequence[LoadWindow]) -> bool:
    """Whether the last windows have more users and no more invocations than one before."""
    peak = max(it.invocations_per_minute for it in windows)
    first = next(it for it in windows if it.invocations_per_minute * MIN_GROWTH >= peak)
    return sum(1 for it in windows if it.num_users > first.num_users) >= NUM_FLAT


def choose_best(windows: Sequence[LoadWindow], rules: StoppingRules) -> BenchmarkLoad | None:
    """The window with the most invocations within all limits. None if every one is beyond."""
    found: BenchmarkLoad | None = None
    for window in windows:
        if window.latency_ms is None or window.has_errors or is_too_slow(window, rules):
            continue
        if found is None or window.invocations_per_minute > found.invocations_per_minute:
            found = BenchmarkLoad(
                began_at=window.began_at,
                ended_at=window.ended_at,
                invocations_per_minute=window.invocations_per_minute,
                latency_ms=window.latency_ms,
                num_users=window.num_users,
            )
    return found


def explain_failure(windows: Sequence[LoadWindow], rules: StoppingRules) -> str:
    """Say why no window counts as the result."""
    error = next((it.first_error for it in windows if it.first_error), None)
    if error is not None and all(it.has_errors for it in windows):
        num_failed = sum(it.num_failed for it in windows)
        total = num_failed + sum(it.num_ok for it in windows)
        return f"{num_failed} of {total} invocations failed. The first: {error}"
    slow = [it.latency_ms for it in windows if it.latency_ms is not None]
    if slow and rules.latency_ms is not None:
        return (
            f"No load kept {name_percentile(rules)} of the latency within {_write_limit(rules)}:"
            f" it was {min(slow):.1f} ms at best."
        )
    return "No invocation was answered before the load ended."


def _write_limit(rules: StoppingRules) -> str:
    return "no limit" if rules.latency_ms is None else f"{plain_number(rules.latency_ms)} ms"


def name_percentile(rules: StoppingRules) -> str:
    """The percentile by its API name, such as P95."""
    return f"P{100 * rules.percentile:g}"
