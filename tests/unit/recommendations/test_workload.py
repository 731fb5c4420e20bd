"""Specifications of AI workloads: their meaning, and the refusal of invalid ones by name."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.domain.ai_benchmark_job import MAX_LOAD_S, AiWorkload
from hostelry.recommendations.workload import PARAMETERS, WorkloadError, parse_workload

LEAST: dict[str, Any] = {"prompt_input_tokens_mean": 550}


def spec(benchmark: Any = None, **parameters: Any) -> str:
    """A specification with these parameters, as JSON."""
    given = {"benchmark": benchmark or {"type": "aiperf"}, "parameters": {**LEAST, **parameters}}
    return json.dumps(given)


@cases(
    "text, expected",
    case(
        "the least has ten requests of one user",
        spec(),
        AiWorkload(prompt_tokens_mean=550.0, request_count=10),
    ),
    case(
        "a user has ten requests, unless a count or a duration is given",
        spec(concurrency=4),
        AiWorkload(prompt_tokens_mean=550.0, concurrency=4, request_count=40),
    ),
    case(
        "a duration limits the load alone",
        spec(benchmark_duration=30),
        AiWorkload(prompt_tokens_mean=550.0, duration_s=30.0),
    ),
    case(
        "every parameter",
        spec(
            prompt_input_tokens_stddev=150,
            output_tokens_mean=150,
            output_tokens_stddev=50,
            concurrency=8,
            request_rate=2.5,
            request_count=100,
            benchmark_duration=60,
            warmup_request_count=5,
            random_seed=7,
            streaming=True,
        ),
        AiWorkload(
            prompt_tokens_mean=550.0,
            prompt_tokens_stddev=150.0,
            output_tokens_mean=150.0,
            output_tokens_stddev=50.0,
            concurrency=8,
            request_rate_per_s=2.5,
            request_count=100,
            duration_s=60.0,
            warm_up_count=5,
            seed=7,
        ),
    ),
    case(
        "limits by AIPerf's names",
        spec(goodput="time_to_first_token:500  inter_token_latency:20.5 request_latency:3000"),
        AiWorkload(
            prompt_tokens_mean=550.0,
            request_count=10,
            latency_limit_ms=3000.0,
            first_token_limit_ms=500.0,
            token_limit_ms=20.5,
        ),
    ),
    case(
        "YAML",
        "benchmark:\n  type: aiperf\nparameters:\n  prompt_input_tokens_mean: 20\n",
        AiWorkload(prompt_tokens_mean=20.0, request_count=10),
    ),
)
def test_a_specification_is_a_workload(text: str, expected: AiWorkload) -> None:
    assert parse_workload(text) == expected
    assert expected.duration_s <= MAX_LOAD_S


@cases(
    "text, problem",
    case("no text", "", "it must be an object with members"),
    case("a broken text", "{", "it is not valid YAML or JSON"),
    case("many aliases", "a: &a [1]\nb: *a", "anchors and aliases are refused"),
    case("a huge text", "x" * 1_000_000, "at most 262144"),
    case("a deep text", "[" * 5_000, "nested more than 32 deep"),
    case("a list", "[1]", "it must be an object with members"),
    case("no benchmark", json.dumps({"parameters": LEAST}), "benchmark must be an object"),
    case(
        "another tool", spec({"type": "genai-perf"}), "benchmark.type is 'genai-perf'; it must be"
    ),
    case(
        "a tool's version", spec({"type": "aiperf", "version": 1}), "benchmark.version is not supp"
    ),
    case("no parameters", '{"benchmark": {"type": "aiperf"}}', "parameters must be an object"),
    case("an unknown parameter", spec(tokenizer="gpt2"), "parameters.tokenizer is not supported"),
    case(
        "a secret", '{"benchmark": {"type": "aiperf"}, "secrets": {}}', "secrets is not supported"
    ),
    case("whole answers", spec(streaming=False), "parameters.streaming must be true"),
    case("a zero", spec(concurrency=0), "parameters.concurrency is 0; it must be a whole number"),
    case("too many users", spec(concurrency=1001), "from 1 to 1000"),
    case("half a user", spec(concurrency=1.5), "parameters.concurrency is 1.5"),
    case("a text for a number", spec(output_tokens_mean="150"), "output_tokens_mean is '150'"),
    case("yes for a number", spec(random_seed=True), "parameters.random_seed is True"),
    case("a number without an end", spec(request_rate=float("inf")), "parameters.request_rate is"),
    case("no limit", spec(goodput=" "), "parameters.goodput is ' '; it must be text of request_l"),
    case("a number for limits", spec(goodput=5), "parameters.goodput is 5; it must be text of"),
    case("an unknown limit", spec(goodput="output_tokens:5"), "goodput has 'output_tokens'"),
    case(
        "a limit twice",
        spec(goodput="request_latency:5 request_latency:6"),
        "parameters.goodput has request_latency twice",
    ),
    case("a limit of nothing", spec(goodput="request_latency"), "give request_latency:MS with a"),
    case("a limit of zero", spec(goodput="request_latency:0"), "goodput has 'request_latency:0'"),
    case("no number", spec(goodput="request_latency:nan"), "with a number above 0, to 3600000"),
    case(
        "a spread of nothing", spec(output_tokens_stddev=5), "needs parameters.output_tokens_mean"
    ),
)
def test_an_invalid_specification_is_refused(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        parse_workload(text)
    assert problem in str(refused.value)
    assert len(str(refused.value)) < 500


def test_the_prompt_is_required() -> None:
    text = json.dumps({"benchmark": {"type": "aiperf"}, "parameters": {"concurrency": 1}})
    with pytest.raises(WorkloadError, match="prompt_input_tokens_mean is required"):
        parse_workload(text)


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_has_limits(name: str) -> None:
    for value in (-1, 1e300, float("nan")):
        with pytest.raises(WorkloadError, match=f"parameters.{name} is"):
            parse_workload(spec(**{name: value}))
