"""`hostelry load --find`: its options and the text of its result."""

import json
from math import inf
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.load.find import (
    FindOptions,
    best_tally,
    check_find_options,
    check_tokens,
    search_document,
    search_lines,
)
from hostelry.cli.load.result import saved_result
from hostelry.loadtest.search import (
    SearchLimits,
    SearchOutcome,
    SearchSettings,
    SearchStep,
    build_step,
    choose_action,
    interrupted_outcome,
)
from hostelry.loadtest.tally import LoadTally, result_document

SETTINGS = SearchSettings(limits=SearchLimits(latency_ms=250.0), max_concurrency=8, step_s=20.0)
NO_OPTIONS = FindOptions(None, None, None, None, None)
LATENCY = FindOptions(250.0, None, None, None, None)


@cases(
    "options, rate, finds, text",
    case("no limit", NO_OPTIONS, None, True, "--find needs a limit: --max-latency-ms"),
    case("a percentile is no limit", FindOptions(None, None, None, None, 99.0), None, True,
        "--find needs a limit"),
    case("an endless limit", FindOptions(inf, None, None, None, None), None, True,
        "--max-latency-ms inf: expected a finite number"),
    case("a rate", LATENCY, 5.0, True, "--find and --rate exclude each other"),
    case("a latency without --find", LATENCY, None, False, "--max-latency-ms is a limit of --find"),
    case("a first token without --find", FindOptions(None, 9.0, None, None, None), None, False,
        "--max-first-token-ms is a limit of --find"),
    case("a token without --find", FindOptions(None, None, 9.0, None, None), None, False,
        "--max-token-ms is a limit of --find"),
    case("errors without --find", FindOptions(None, None, None, 0.0, None), None, False,
        "--max-errors-percent is a limit of --find"),
    case("a percentile without --find", FindOptions(None, None, None, None, 99.0), None, False,
        "--percentile is an option of --find"),
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(
    options: FindOptions, rate: float | None, finds: bool, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        check_find_options(options, rate, finds=finds)


@cases(
    "options, finds",
    case("a load test", NO_OPTIONS, False),
    case("a limit of latency", LATENCY, True),
    case("a limit of errors only", FindOptions(None, None, None, 0.0, None), True),
)
def test_options_that_fit_together_pass(options: FindOptions, finds: bool) -> None:
    check_find_options(options, None, finds=finds)


def test_limits_of_tokens_need_tokens() -> None:
    for options in (FindOptions(None, 9.0, None, None, None), FindOptions(None, None, 9.0, 0, 0)):
        check_tokens(options, streams_text=True)
        with pytest.raises(TerminalError, match="the answer has no tokens"):
            check_tokens(options, streams_text=False)
    check_tokens(LATENCY, streams_text=False)


def window(latency_s: float, num_tokens: int = 0, num_failed: int = 0) -> LoadTally:
    tally = LoadTally(num_ok=100, measured_s=1.0, num_tokens=num_tokens)
    tally.latencies.extend([latency_s] * 100)
    for _ in range(num_failed):
        tally.fail("503 no_capacity", "no copy can\x1b[2J take more")
    return tally


def steps_of(*windows: LoadTally, first: int = 1) -> list[SearchStep]:
    """A step of each window, with concurrencies that double."""
    return [
        build_step(SETTINGS, first * 2**number, [one] * 3) for number, one in enumerate(windows)
    ]


GOOD, SLOW, FAILING = window(0.1), window(0.4), window(0.1, num_failed=25)
BUSY = window(0.4)
BUSY.cpu_s = 0.95


@cases(
    "steps, texts",
    case("a broken limit", steps_of(GOOD, SLOW) + steps_of(SLOW, first=2),
        ["x: the limits hold at concurrency 1: 100 requests/s (+-0.0%)",
         "There latency p95 is 100 ms (100 to 100 ms in its windows, limit 250 ms).",
         "A limit is broken at concurrency 2: latency p95 400 ms > 250 ms."]),
    case("no concurrency", steps_of(SLOW) * 2,
        ["x: no concurrency was found at which the limits hold",
         "A limit is broken at concurrency 1: latency p95 400 ms > 250 ms."]),
    case("errors", steps_of(FAILING) * 2,
        ["A limit is broken at concurrency 1: errors 20 % > 0 %.",
         "errors  150 x 503 no_capacity: no copy can[2J take more"]),
    case("the client", steps_of(GOOD) + steps_of(BUSY, first=2) * 2,
        ["This client limits the load, so the model may serve more.", "used 95% of the one core"]),
    case("the upper bound", steps_of(*[window(0.1 + it / 20) for it in range(4)]),
        ["The search ends at concurrency 8. A higher --concurrency raises this bound."]),
    case("flat throughput", steps_of(GOOD, GOOD, GOOD),
        ["Throughput does not grow above concurrency 1: more requests only wait. The limits also "
         "hold at concurrency 4."]),
    case("tokens", steps_of(window(0.1, 500), window(0.1, 500), window(0.1, 500)),
        ["100 requests/s (+-0.0%), 500 tokens/s", "TOKENS/S", "FIRST TOKEN P95"]),
)  # fmt: skip
def test_the_result_names_the_answer_and_its_reason(
    steps: list[SearchStep], texts: list[str]
) -> None:
    outcome = choose_action(SETTINGS, steps)
    assert isinstance(outcome, SearchOutcome)
    shown = "\n".join(search_lines("x", SETTINGS, steps, outcome))
    assert [it for it in texts if it not in shown] == [], shown


def test_an_interrupted_search_shows_its_steps() -> None:
    steps = steps_of(GOOD, SLOW)
    lines = search_lines("x", SETTINGS, steps, interrupted_outcome(steps))
    assert "The search was ended early. Higher concurrencies were not measured." in lines
    assert [it.split()[:2] for it in lines if it[:1] in ("1", "2")] == [["1", "100"], ["2", "100"]]
    assert len(search_lines("x", SETTINGS, [], interrupted_outcome([]))) == 2


def test_a_result_has_the_steps_and_can_be_compared(tmp_path: Any) -> None:
    steps = [*steps_of(GOOD, SLOW), *steps_of(SLOW, first=2)]
    outcome = choose_action(SETTINGS, steps)
    assert isinstance(outcome, SearchOutcome)
    result = result_document(best_tally(outcome), "x", LATENCY.as_json, "")
    document = search_document(SETTINGS, steps, outcome, result)
    assert document["options"] == {"max_latency_ms": 250.0}
    assert document["latency_ms"]["p50"] == 100
    search = document["search"]
    assert (search["concurrency"], search["limited_by"]) == (1, "limit")
    assert [(it["concurrency"], it["holds"]) for it in search["steps"]] == [
        (1, True), (2, False), (2, False)]  # fmt: skip
    assert search["steps"][1]["latency_ms"]["p95"] == 400
    assert search["steps"][1]["limits"][0] == {
        "measure": "latency p95", "unit": "ms", "limit": 250.0, "value": 400.0,
        "in_windows": [400.0] * 3, "holds": False}  # fmt: skip
    file = tmp_path / "found.json"
    file.write_text(json.dumps(document))
    assert saved_result(file)["search"] == search
