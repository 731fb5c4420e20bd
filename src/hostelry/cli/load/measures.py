"""Measures of a load test: samples, percentiles, and the result as JSON and text. Pure."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.cli.printable import one_line, printable
from hostelry.cli.status_text import columns

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
MOST_CPU_SHARE = 0.8  # of the single core that the client uses
MOST_LATE_MS = 25.0  # p99 of the client's own delays
MAX_ERRORS = 20  # distinct errors that keep a text
FORMAT = 1
Document = Mapping[str, Any]
MAX_SAVED_BYTES = 16 * 1024 * 1024
COMPARED = (
    ("requests/s", ("requests_per_s",)),
    ("latency p50", ("latency_ms", "p50")),
    ("latency p90", ("latency_ms", "p90")),
    ("latency p99", ("latency_ms", "p99")),
    ("first token p50", ("first_token_ms", "p50")),
    ("first token p99", ("first_token_ms", "p99")),
    ("inter-token p50", ("inter_token_ms", "p50")),
    ("inter-token p99", ("inter_token_ms", "p99")),
    ("tokens/s", ("tokens_per_s",)),
)
SPREADS = (
    ("latency", "latency_ms"),
    ("first token", "first_token_ms"),
    ("inter-token", "inter_token_ms"),
)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie. 0 without values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def doubles() -> "array[float]":
    """An empty array of seconds, with 8 bytes per value."""
    return array("d")


@dataclass(slots=True)
class LoadTally:
    """The measures of one load test. Durations are in seconds.

    Args:
        latencies: from the time when a request was due to the end of its answer. A request that has
            no answer at the end of the test counts with its waiting time. Refused requests do not.
        first: from the time when a request was due to the first byte, or an LLM's first text.
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
        """Count an error, and keep the text of the first error with this code."""
        self.errors[code] += 1
        if code not in self.error_texts and len(self.error_texts) < MAX_ERRORS:
            self.error_texts[code] = one_line(text, 200)

    @property
    def num_requests(self) -> int:
        """Requests that were due, whether answered or not."""
        return self.num_ok + sum(self.errors.values())


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


def result_lines(result: Document) -> list[str]:
    """The result as a table, with its errors and with warnings about its figures."""
    rows: list[Sequence[str]] = [("", "p50", "p90", "p99", "max", "mean")]
    for name, key in SPREADS:
        spread = result.get(key)
        if spread is not None:
            cells = (f"{_number(spread[it])} ms" for it in rows[0][1:])
            rows.append((first_name(name, result), *cells))
    tokens = f", {_number(result['tokens_per_s'])} tokens/s" if result["tokens"] else ""
    head = (
        f"{result['target']}: {result['requests']} requests in {result['measured_s']:.1f} s, "
        f"{_number(result['requests_per_s'])} answered a second{tokens}"
    )
    return [printable(head), "", *columns(rows), *error_lines(result), *result["warnings"]]


def first_name(name: str, result: Document) -> str:
    """The name of a row. Without tokens, the first byte is measured."""
    return "first byte" if name == "first token" and not result["tokens"] else name


def error_lines(result: Document) -> list[str]:
    """A line per error code, the most frequent first."""
    errors = sorted(result["errors"].items(), key=lambda it: -it[1])
    lines = []
    for code, count in errors:
        text = result["error_texts"].get(code)
        lines.append(
            f"errors  {count} x {one_line(code)}" + (f": {one_line(text)}" if text else "")
        )
    return lines or ["errors  none"]


def comparison_lines(before: Document, now: Document) -> list[str]:
    """Each measure of both runs with their ratio, after the differences of their options."""
    lines = []
    for name, (was, is_) in sorted(differences(before, now).items()):
        lines.append(one_line(f"Not the same {name}: {was} before, {is_} now."))
    rows: list[Sequence[str]] = [("", "before", "now", "ratio")]
    for name, path in COMPARED:
        was, is_ = _at(before, path), _at(now, path)
        if (was is None and is_ is None) or (was == 0 and is_ == 0):
            continue
        ratio = f"{is_ / was:.2f}" if was and is_ is not None else "-"
        rows.append((name, _number(was), _number(is_), ratio))
    return [*lines, *columns(rows)]


def differences(before: Document, now: Document) -> dict[str, tuple[Any, Any]]:
    """The options that differ between two runs: name -> before, now."""
    first, second = ({"target": run["target"], **run["options"]} for run in (before, now))
    return {
        name: (first.get(name), second.get(name))
        for name in first.keys() | second.keys()
        if first.get(name) != second.get(name)
    }


def saved_result(path: Path) -> dict[str, Any]:
    """Read a result that --save wrote. Raises TerminalError if the file has another format."""
    try:
        with path.open("rb") as file:
            found = decode(file.read(MAX_SAVED_BYTES), dict[str, Any])
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TerminalError(f"{path} is not a result of `hostelry load --save`: {error}") from None
    is_result = (
        found.get("format") == FORMAT
        and isinstance(found.get("target"), str)
        and isinstance(found.get("options"), dict)
        and all(_is_measure(found, path_to) for _, path_to in COMPARED)
    )
    if not is_result:
        raise TerminalError(f"{path} is not a result of `hostelry load --save` of this version")
    return found


def progress_line(tally: LoadTally, elapsed_s: float, in_flight: int) -> str:
    """The state of a running test on one line."""
    recent = sorted(tally.latencies[-1000:])
    rate = tally.num_ok / elapsed_s if elapsed_s > 0 else 0.0
    p50_ms, p99_ms = (percentile(recent, share) * 1000 for share in (0.5, 0.99))
    return (
        f"{elapsed_s:.0f} s  {tally.num_requests} requests  {rate:.1f}/s  p50 {p50_ms:.1f} ms  "
        f"p99 {p99_ms:.1f} ms  errors {sum(tally.errors.values())}  in flight {in_flight}"
    )


def _at(result: Document, path: Sequence[str]) -> float | None:
    found: Any = result
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, int | float) else None


def _is_measure(result: Document, path: Sequence[str]) -> bool:
    return _at(result, path) is not None or result.get(path[0]) is None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
