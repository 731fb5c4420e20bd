"""Reads the specification of an AI workload: a YAML or JSON document, in the form of AWS's guide.

    {"benchmark": {"type": "aiperf"}, "parameters": {"prompt_input_tokens_mean": 550, ...}}

Source: "Set up a workload configuration for generative AI inference recommendations" in the
SageMaker developer guide. The parameters are named as AIPerf's options.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.printable import plain_number
from hostelry.domain.ai_benchmark_job import MAX_LOAD_S, AiWorkload
from hostelry.graph.strict_yaml import YamlError, read_yaml

TYPE = "aiperf"
REQUESTS_PER_USER = 10  # without request_count and benchmark_duration
MAX_TOKENS = 1_000_000
MAX_USERS = 1_000
MAX_REQUESTS = 1_000_000
MAX_RATE_PER_S = 10_000
MAX_SEED = 2**63 - 1


class WorkloadError(HostelryError):
    """The specification is invalid. The message names the part."""


class _Limits(msgspec.Struct, frozen=True):
    """The field of `AiWorkload`, and the values that a parameter may have."""

    field: str
    least: float
    most: float
    is_whole: bool = False


PARAMETERS: Mapping[str, _Limits] = {
    "prompt_input_tokens_mean": _Limits("prompt_tokens_mean", 1, MAX_TOKENS),
    "prompt_input_tokens_stddev": _Limits("prompt_tokens_stddev", 0, MAX_TOKENS),
    "output_tokens_mean": _Limits("output_tokens_mean", 1, MAX_TOKENS),
    "output_tokens_stddev": _Limits("output_tokens_stddev", 0, MAX_TOKENS),
    "concurrency": _Limits("concurrency", 1, MAX_USERS, is_whole=True),
    "request_rate": _Limits("request_rate_per_s", 0.001, MAX_RATE_PER_S),
    "request_count": _Limits("request_count", 1, MAX_REQUESTS, is_whole=True),
    "benchmark_duration": _Limits("duration_s", 1, MAX_LOAD_S),
    "warmup_request_count": _Limits("warm_up_count", 0, MAX_REQUESTS, is_whole=True),
    "random_seed": _Limits("seed", 0, MAX_SEED, is_whole=True),
}
REQUIRED = "prompt_input_tokens_mean"
GOODPUT = "goodput"
MAX_LIMIT_MS = 3_600_000
# The field of `AiWorkload` with the limit in milliseconds, by AIPerf's name of the measure.
GOODPUT_LIMITS: Mapping[str, str] = {
    "request_latency": "latency_limit_ms",
    "time_to_first_token": "first_token_limit_ms",
    "inter_token_latency": "token_limit_ms",
}


def parse_workload(text: str) -> AiWorkload:
    """The workload of a specification. Raises WorkloadError, which names the invalid part."""
    try:
        document = read_yaml(text)
    except YamlError as error:
        raise WorkloadError(f"it is not valid YAML or JSON: {error}") from None
    given = _get_mapping(document, "it")
    _check_names(given, ("benchmark", "parameters"), "")
    benchmark = _get_mapping(given.get("benchmark"), "benchmark")
    _check_names(benchmark, ("type",), "benchmark.")
    if benchmark.get("type") != TYPE:
        raise WorkloadError(f'benchmark.type is {benchmark.get("type")!a:.80}; it must be "{TYPE}"')
    parameters = _get_mapping(given.get("parameters"), "parameters")
    _check_streaming(parameters)
    _check_names(parameters, (*PARAMETERS, "streaming", GOODPUT), "parameters.")
    if REQUIRED not in parameters:
        raise WorkloadError(f"parameters.{REQUIRED} is required")
    found = {
        limits.field: _get_number(parameters[name], name, limits)
        for name, limits in PARAMETERS.items()
        if name in parameters
    }
    _check_pairs(parameters)
    if "request_count" not in parameters and "benchmark_duration" not in parameters:
        found["request_count"] = REQUESTS_PER_USER * int(found.get("concurrency", 1))
    fields: dict[str, Any] = {**found, **_parse_goodput(parameters.get(GOODPUT))}
    return AiWorkload(**fields)


def _parse_goodput(given: Any) -> dict[str, float]:
    """The limits, such as "time_to_first_token:500 inter_token_latency:50"."""
    if given is None:
        return {}
    path, known = f"parameters.{GOODPUT}", ", ".join(GOODPUT_LIMITS)
    parts = given.split() if isinstance(given, str) else []
    if not parts:
        raise WorkloadError(f"{path} is {given!a:.80}; it must be text of {known}, each with :MS")
    found: dict[str, float] = {}
    for part in parts:
        name, _, text = part.partition(":")
        field = GOODPUT_LIMITS.get(name)
        if field is None:
            raise WorkloadError(f"{path} has {name!a:.80}; it can have {known}")
        if field in found:
            raise WorkloadError(f"{path} has {name} twice")
        try:
            limit_ms = float(text)
        except ValueError:
            limit_ms = math.nan
        if not 0 < limit_ms <= MAX_LIMIT_MS:
            raise WorkloadError(
                f"{path} has {part!a:.80}; give {name}:MS with a number above 0, to {MAX_LIMIT_MS}"
            )
        found[field] = limit_ms
    return found


def _get_mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WorkloadError(f"{name} must be an object with members")
    return value


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], path: str) -> None:
    unknown = next((it for it in given if it not in known), None)
    if unknown is not None:
        raise WorkloadError(
            f"{path}{unknown:.80} is not supported by this version of Hostelry; it has"
            f" {', '.join(path + it for it in known)}"
        )


def _check_streaming(parameters: Mapping[str, Any]) -> None:
    if parameters.get("streaming", True) is not True:
        raise WorkloadError(
            "parameters.streaming must be true: without streamed answers the time to the first"
            " token cannot be measured"
        )


def _get_number(value: Any, name: str, limits: _Limits) -> float:
    kinds = (int,) if limits.is_whole else (int, float)
    kind = "a whole number" if limits.is_whole else "a number"
    is_number = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not limits.least <= value <= limits.most:
        raise WorkloadError(
            f"parameters.{name} is {value!a:.80}; it must be {kind} from"
            f" {plain_number(limits.least)} to {plain_number(limits.most)}"
        )
    return int(value) if limits.is_whole else float(value)


def _check_pairs(parameters: Mapping[str, Any]) -> None:
    if "output_tokens_stddev" in parameters and "output_tokens_mean" not in parameters:
        raise WorkloadError("parameters.output_tokens_stddev needs parameters.output_tokens_mean")
