"""AIPerf's configuration of a workload, and the measures in its records."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.jobs.ai_benchmarks.aiperf_files import (
    AiperfRecordError,
    build_configuration,
    read_records,
)

LONGEST = {"duration": 7200.0, "gracePeriod": 600.0}
USERS = AiWorkload(prompt_tokens_mean=60.0, concurrency=4, request_count=40, seed=7)


def record(start_s: float, **metrics: Any) -> dict[str, Any]:
    """A record of a request that takes a second."""
    metadata = {
        "request_start_ns": int(start_s * 1e9),
        "request_end_ns": int((start_s + 1) * 1e9),
        "worker_id": "w",
        "was_cancelled": False,
    }
    values = {"request_latency": {"value": 1000.0, "unit": "ms"}, **metrics}
    return {"metadata": metadata, "metrics": values, "error": None}


@cases(
    "workload, phase",
    case("users", USERS, {"type": "concurrency", "concurrency": 4, "requests": 40, **LONGEST}),
    case("a rate", AiWorkload(prompt_tokens_mean=60.0, request_rate_per_s=2.5, request_count=9),
        {"type": "constant", "rate": 2.5, "concurrency": 1, "requests": 9, **LONGEST}),
    case("a duration", AiWorkload(prompt_tokens_mean=60.0, duration_s=30.0),
        {"type": "concurrency", "concurrency": 1, "duration": 30.0, "gracePeriod": 600.0}),
)  # fmt: skip
def test_the_phase_of_a_workload(workload: AiWorkload, phase: dict[str, Any]) -> None:
    found = build_configuration(workload, "chat", "http://127.0.0.1:1", is_chat=True)
    assert found["benchmark"]["profiling"] == phase
    assert found["randomSeed"] == workload.seed
    assert "KEY" in found["benchmark"]["endpoint"]["apiKey"], "the name of a variable, not a key"


def test_records_become_measures() -> None:
    first = record(
        10.0,
        time_to_first_token={"value": 0.25, "unit": "sec"},
        inter_chunk_latency={"value": [10.0, 20.0], "unit": "ms"},
        output_sequence_length={"value": 3, "unit": "tokens"},
        input_sequence_length={"value": 60, "unit": "tokens"},
    )
    failed = {**record(10.5), "metrics": {}, "error": {"code": 503, "message": "no copy"}}
    cut = record(12.0)
    cut["metadata"]["was_cancelled"] = True
    tally = read_records(json.dumps(it).encode() for it in (first, failed, cut))
    assert (tally.num_ok, tally.num_tokens, tally.num_prompt_tokens) == (1, 3, 60)
    assert [*tally.latencies, *tally.first, *tally.gaps] == [1.0, 0.25, 0.01, 0.02]
    assert tally.errors == {"503": 1, "unfinished": 1}
    assert tally.measured_s == 3.0


@cases(
    "line",
    case("not JSON", b"{"),
    case("without metadata", b"{}"),
    case("without a latency", json.dumps({**record(1.0), "metrics": {}}).encode()),
    case("an unknown unit", json.dumps(
        record(1.0, request_latency={"value": 1, "unit": "years"})).encode()),
    case("a gap that is text", json.dumps(
        record(1.0, inter_chunk_latency={"value": ["x"], "unit": "ms"})).encode()),
)  # fmt: skip
def test_records_of_another_form_are_refused(line: bytes) -> None:
    with pytest.raises(AiperfRecordError):
        read_records([line])
