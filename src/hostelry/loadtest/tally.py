"""The measures of a load test: samples, counts and percentiles. Pure."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.base.printable import one_line

MOST_CPU_SHARE = 0.8  # of the single core that the client uses
MOST_LATE_MS = 25.0  # p99 of the client's own delays
FORMAT = 1  # of a result
PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
MAX_ERRORS = 20  # distinct errors that keep a text


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie. 0 without values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def doubles() -> "array[float]":
    """An empty array of seconds, with 8 bytes per value."""
    return array("d")


class LoadTally(msgspec.Struct):
    """The measures of one load test. Durations are in seconds.

    Args:
        latencies: from the time when a request was due to the end of its answer. A request that has
            no answer at the end of the test counts with its waiting time. Refused requests do not.
        first: from the time when a request was due to the first byte, or an LLM's first text.
        gaps: between the texts of one answer.
        late: the client's own delays.
    """

    latencies: "array[float]" = msgspec.field(default_factory=doubles)
    first: "array[float]" = msgspec.field(default_factory=doubles)
    gaps: "array[float]" = msgspec.field(default_factory=doubles)
    late: "array[float]" = msgspec.field(default_factory=doubles)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    error_texts: dict[str, str] = msgspec.field(default_factory=dict)
    num_ok: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    num_bytes: int = 0
    num_unsent: int = 0
    cpu_s: float = 0.0
    measured_s: float = 0.0

    def fail(self, code: str, text: str = "") -> None:
        """Count an error, and keep the text of the first error with this code."""
        self.errors[code] += 1
        if code not in self.error_texts and len(self.error_texts) < MAX_ERRORS:
            self.error_texts[code] = one_line(text, 200)

    @property
    def num_requests(self) -> int:
        """Requests that were due, whether answered or not."""
        return self.num_ok + sum(self.errors.values())


def join_tallies(tallies: Iterable[LoadTally]) -> LoadTally:
    """The measures of several windows as the measures of one long window."""
    joined = LoadTally()
    for one in tallies:
        joined.latencies += one.latencies
        joined.first += one.first
        joined.gaps += one.gaps
        joined.late += one.late
        joined.errors += one.errors
        joined.error_texts = one.error_texts | joined.error_texts
        joined.num_ok += one.num_ok
        joined.num_tokens += one.num_tokens
        joined.num_prompt_tokens += one.num_prompt_tokens
        joined.num_bytes += one.num_bytes
        joined.num_unsent += one.num_unsent
        joined.cpu_s += one.cpu_s
        joined.measured_s += one.measured_s
    return joined


def client_limits(tally: LoadTally) -> list[str]:
    """Sentences about figures that the client limits, and not the platform."""
    found = []
    share = tally.cpu_s / (tally.measured_s or 1.0)
    if share > MOST_CPU_SHARE:
        found.append(
            f"This client used {share:.0%} of the one core that it can use: it may be the limit. "
            "Run two at once, or one on another machine."
        )
    late_ms = percentile(sorted(tally.late), 0.99) * 1000
    if late_ms > MOST_LATE_MS:
        found.append(
            f"This client was up to {late_ms:.0f} ms late itself (p99), as the machine is busy: "
            "latencies have that in them."
        )
    if tally.num_unsent:
        found.append(
            f"{tally.num_unsent} requests were due and never sent, as all connections waited: the "
            "rate is more than is served. Their wait until the end is in the latencies."
        )
    return found


def result_document(
    tally: LoadTally, target: str, options: Mapping[str, Any], at: str
) -> dict[str, Any]:
    """The result as JSON values, for programs and later runs. Latencies are in milliseconds."""
    seconds = tally.measured_s or 1.0
    return {
        "format": FORMAT,
        "target": target,
        "at": at,
        "options": dict(options),
        "measured_s": round(tally.measured_s, 3),
        "requests": tally.num_requests,
        "ok": tally.num_ok,
        "requests_per_s": round(tally.num_ok / seconds, 3),
        "latency_ms": spread_ms(tally.latencies),
        "first_token_ms": spread_ms(tally.first),
        "inter_token_ms": spread_ms(tally.gaps),
        "tokens": tally.num_tokens,
        "tokens_per_s": round(tally.num_tokens / seconds, 3),
        "bytes_per_s": round(tally.num_bytes / seconds, 1),
        "errors": dict(tally.errors),
        "error_texts": dict(tally.error_texts),
        "unsent": tally.num_unsent,
        "client": {
            "cpu_share": round(tally.cpu_s / seconds, 3),
            "late_p99_ms": round(percentile(sorted(tally.late), 0.99) * 1000, 3),
        },
        "warnings": client_limits(tally),
    }


def spread_ms(seconds: Sequence[float]) -> dict[str, float] | None:
    """Percentiles, mean and maximum in milliseconds. None without values."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    found = {name: percentile(ordered, share) for name, share in PERCENTILES}
    found |= {"max": ordered[-1], "mean": sum(ordered) / len(ordered)}
    return {name: round(value * 1000, 3) for name, value in found.items()}
