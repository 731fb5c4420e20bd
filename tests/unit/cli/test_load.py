"""The text of a load test's result, and saved results."""

from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.load.result import (
    comparison_lines,
    differences,
    progress_line,
    result_lines,
    saved_result,
)
from hostelry.loadtest.tally import LoadTally, result_document

OPTIONS = {"concurrency": 4, "rate": None}


def tally(**fields: Any) -> LoadTally:
    made = LoadTally(measured_s=10.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


BUSY = tally(
    num_ok=100, num_tokens=500, latencies=array("d", [0.1] * 100), first=array("d", [0.01])
)


def test_a_result_has_rates_spreads_and_errors() -> None:
    seen = tally(num_ok=100, num_tokens=500, latencies=array("d", [0.1] * 100))
    seen.fail("503 no_capacity", "No copy\x1b[2J can\nmore")
    seen.fail("503 no_capacity", "another")
    result = result_document(seen, "llama", OPTIONS, "2026-01-01T00:00:00+00:00")
    assert (result["requests"], result["requests_per_s"], result["tokens_per_s"]) == (102, 10, 50)
    text = "\n".join(result_lines(result))
    assert "102 requests in 10.0 s, 10 answered a second, 50 tokens/s" in text
    assert "errors  2 x 503 no_capacity: No copy[2J can" in text
    assert "first token" not in text, "nothing was measured of it"


def test_without_tokens_the_first_thing_is_a_byte() -> None:
    result = result_document(tally(num_ok=1, first=array("d", [0.1])), "echo", OPTIONS, "")
    assert any(line.startswith("first byte") for line in result_lines(result))


def test_runs_are_compared_as_ratios() -> None:
    before = result_document(BUSY, "llama", OPTIONS, "")
    faster = tally(num_ok=200, num_tokens=500, latencies=array("d", [0.05] * 200))
    now = result_document(faster, "llama", {**OPTIONS, "concurrency": 8}, "")
    lines = comparison_lines(before, now)
    assert lines[0] == "Not the same concurrency: 4 before, 8 now."
    ratios = {line[:15].strip(): line.split()[-1] for line in lines[2:]}
    assert ratios["requests/s"] == "2.00"
    assert ratios["latency p50"] == "0.50"
    assert ratios["tokens/s"] == "1.00"
    assert ratios["first token p50"] == "-", "only one run has it"
    assert "inter-token p50" not in ratios


def test_the_same_run_differs_in_nothing() -> None:
    result = result_document(BUSY, "llama", OPTIONS, "")
    assert differences(result, result) == {}
    other = {**result, "target": "other"}
    assert differences(result, other) == {"target": ("llama", "other")}


def test_a_saved_result_is_read_again(tmp_path: Path) -> None:
    result = result_document(BUSY, "llama", OPTIONS, "")
    file = tmp_path / "r.json"
    file.write_bytes(msgspec.json.encode(result))
    assert saved_result(file)["requests_per_s"] == 10


@cases(
    "content, text",
    case("a missing file", None, "cannot be read: No such file"),
    case("no JSON", b"hello", "is not a result"),
    case("no object", b"[]", "is not a result"),
    case("another object", b"{}", "is not a result"),
    case(
        "figures that are none",
        b'{"format": 1, "target": "x", "options": {}, "latency_ms": {"p50": "a"}}',
        "is not a result",
    ),
    case(
        "a sweep", b'{"format": 1, "target": "x", "options": {}, "sweep": {}}', "no single result"
    ),
    case("a later form", b'{"format": 2, "target": "x", "options": {}}', "version"),
)
def test_a_file_that_is_no_result_is_refused(
    content: bytes | None, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TerminalError, match=text):
        saved_result(file)


def test_the_progress_is_a_line() -> None:
    assert progress_line(BUSY, 10.0, 3) == (
        "10 s  100 requests  10.0/s  p50 100.0 ms  p99 100.0 ms  errors 0  in flight 3"
    )
