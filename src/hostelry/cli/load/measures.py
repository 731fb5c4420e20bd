"""Measures of a load test: samples, percentiles, the result as a document. Pure."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostelry.cli.printable import one_line

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
MOST_CPU_SHARE = 0.8  # of the one core that the client has
MOST_LATE_MS = 25.0  # p99 of the client's own delay
MAX_ERRORS = 20  # distinct ones with a text
FORMAT = 1


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie; 0 where there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def doubles() -> "array[float]":
    """An empty array of seconds, which takes 8 bytes a value."""
    return array("d")


@dataclass(slots=True)
class LoadTally:
    """Everything that one load test saw; durations in seconds.

    Args:
        latencies: from when a request was due to its whole answer; those without one when the time
            was over count with the time that they had waited, refused ones do not.
        first: from when a request was due to its first byte, of an LLM its first text.
        gaps: between the texts of one answer.
        late: the client's own delays.
    """

    latencies: "array[float]" = field(default_factory=doubles)
    first: "array[float]" = field(default_factory=doubles)
    gaps: "array[float]" = field(default_factory=doubles)
    late: "array[float]" = field(default_factory=doubles)
    errors: Counter[str] = field(default_factory=Counter)
    error_texts: dict[str, str] = field(default_factory=dict)
    num_ok: int = 0
    num_tokens: int = 0
    num_bytes: int = 0
    num_unsent: int = 0
    cpu_s: float = 0.0
    measured_s: float = 0.0

    def fail(self, code: str, text: str = "") -> None:
        """Count an error, with the text of the first one of its code."""
        self.errors[code] += 1
        if code not in self.error_texts and len(self.error_texts) < MAX_ERRORS:
            self.error_texts[code] = one_line(text, 200)

    @property
    def num_requests(self) -> int:
        """Requests that were due, answered or not."""
        return self.num_ok + sum(self.errors.values())


def result_document(
    tally: LoadTally, target: str, options: Mapping[str, Any], at: str
) -> dict[str, Any]:
    """The result for programs and for later runs; latencies in milliseconds."""
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
    """Percentiles, mean and maximum in milliseconds; None of no values."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    found = {name: percentile(ordered, share) for name, share in PERCENTILES}
    found |= {"max": ordered[-1], "mean": sum(ordered) / len(ordered)}
    return {name: round(value * 1000, 3) for name, value in found.items()}


def client_limits(tally: LoadTally) -> list[str]:
    """Sentences on where the figures are the client's limit, not the platform's."""
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
