"""The result of a load test as JSON and text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.printable import one_line, printable
from hostelry.cli.status_text import columns, number_text
from hostelry.loadtest.tally import FORMAT, LoadTally, percentile

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


def result_lines(result: Document) -> list[str]:
    """The result as a table, with its errors and with warnings about its figures."""
    rows: list[Sequence[str]] = [("", "p50", "p90", "p99", "max", "mean")]
    for name, key in SPREADS:
        spread = result.get(key)
        if spread is not None:
            cells = (f"{number_text(spread[it])} ms" for it in rows[0][1:])
            rows.append((first_name(name, result), *cells))
    tokens = f", {number_text(result['tokens_per_s'])} tokens/s" if result["tokens"] else ""
    head = (
        f"{result['target']}: {result['requests']} requests in {result['measured_s']:.1f} s, "
        f"{number_text(result['requests_per_s'])} answered a second{tokens}"
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
        rows.append((name, number_text(was), number_text(is_), ratio))
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
    if "sweep" in found:
        raise TerminalError(f"{path} is the result of a sweep, which has no single result")
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
