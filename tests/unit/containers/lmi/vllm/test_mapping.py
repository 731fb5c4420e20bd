"""The mapping of requests and outputs between our engine's values and vLLM's."""

from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.vllm.fake_vllm import FakeCompletion, FakeGenerated, FakeScore

from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.adapters import read_own_config
from hostelry.containers.lmi.vllm.arguments import (
    SAME,
    check_given,
    engine_arguments,
    follow_choice,
    sampling_arguments,
)
from hostelry.containers.lmi.vllm.interface import to_outputs
from hostelry.containers.lmi.vllm.sizes import Gpu
from hostelry.engine.config import PooledTask
from hostelry.engine.request import (
    FinishReason,
    Output,
    Request,
    SamplingParams,
    Structure,
    TokenLogprob,
)

PROMPT = (5, 6, 7)


def request(num_prompt_logprobs: int | None = None, **sampling: Any) -> Request:
    return Request(
        id="r",
        prompt_token_ids=PROMPT,
        sampling=SamplingParams(**sampling),
        num_prompt_logprobs=num_prompt_logprobs,
    )


@cases(
    "sampling, expected",
    case("defaults", {}, {"temperature": 0.0, "max_tokens": 30, "seed": None}),
    case("no token is one, dropped", {"max_new_tokens": 0}, {"max_tokens": 1}),
    case("a seed of -1 is a seed", {"seed": -1}, {"seed": 2**63 - 1}),
    case("a seed", {"seed": 7}, {"seed": 7}),
    case("end tokens are stop tokens", {"stop_token_ids": (9, 2)}, {"stop_token_ids": [9, 2]}),
    case("ignored end tokens are none", {"ignore_eos": True, "stop_token_ids": (9,)},
        {"stop_token_ids": [9], "ignore_eos": True}),
    case("a structure ends with the tokenizer's end token", {"structure": Structure("json_object")},
        {"ignore_eos": False, "structured_outputs": {"json_object": True}}),
    case("choices", {"structure": Structure("choice", '["a", "b"]')},
        {"structured_outputs": {"choice": ["a", "b"]}}),
    case("a pattern", {"structure": Structure("regex", "a+")},
        {"structured_outputs": {"regex": "a+"}}),
    case("no more tokens at least than at most", {"min_new_tokens": 50, "max_new_tokens": 4},
        {"min_tokens": 4}),
    case("a token's bias", {"logit_bias": ((3, -100.0),)}, {"logit_bias": {3: -100.0}}),
    case("what has the same name and meaning", {
            "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1,
            "repetition_penalty": 1.2, "presence_penalty": 1.0, "frequency_penalty": -1.0,
        }, {
            "temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1,
            "repetition_penalty": 1.2, "presence_penalty": 1.0, "frequency_penalty": -1.0,
        }),
)  # fmt: skip
def test_parameters(sampling: dict[str, Any], expected: dict[str, Any]) -> None:
    arguments = sampling_arguments(request(**sampling), (2,))
    assert {name: arguments[name] for name in expected} == expected


@cases(
    "sampling, text",
    case("vLLM would raise it", {"temperature": 0.001}, "temperature is 0.001"),
    case(
        "a keyword that is not kept",
        {"structure": Structure("json_schema", '{"type": "object", "if": {"type": "null"}}')},
        "if",
    ),
    case("choices that are none", {"structure": Structure("choice", "1")}, "choice"),
)
def test_refused_parameters(sampling: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        sampling_arguments(request(**sampling), (2,))


def test_a_field_that_vllm_is_not_given_is_refused_once_it_is_set() -> None:
    asked = Request(
        id="r", prompt_token_ids=PROMPT, sampling=SamplingParams(), token_types=(0, 1, 0)
    )
    with pytest.raises(ValueError, match="token_types is not done with vLLM"):
        sampling_arguments(asked, ())
    with pytest.raises(ValueError, match="top_k is not done with vLLM"):
        check_given(SamplingParams(top_k=3), SAME - {"top_k"})


def charge_output(**completion: Any) -> FakeGenerated:
    return FakeGenerated([FakeCompletion(**completion)])


def test_each_token_is_an_output_and_the_last_has_the_reason() -> None:
    both = to_outputs(
        request(),
        charge_output(token_ids=[4, 2], finish_reason="stop"),
        queued_s=0.5,
        content_id="version",
    )
    assert [it.token_id for it in both] == [4, 2]
    assert [it.finish_reason for it in both] == [None, FinishReason.EOS]
    assert [(it.queued_s, it.num_cached_tokens) for it in both] == [(0.5, 1), (None, None)]
    assert [it.adapter_content_id for it in both] == [None, "version"]


def test_the_token_of_a_request_for_none_is_dropped() -> None:
    (only,) = to_outputs(
        request(max_new_tokens=0),
        charge_output(token_ids=[4], finish_reason="length"),
        queued_s=0.5,
        content_id=None,
    )
    assert (only.token_id, only.finish_reason) == (None, FinishReason.LENGTH)


def test_a_failed_request_points_to_the_log() -> None:
    (only,) = to_outputs(
        request(), charge_output(token_ids=[], finish_reason="error"), queued_s=0.5, content_id=None
    )
    assert only.finish_reason is FinishReason.ERROR
    assert "log" in (only.error or "")


def test_alternatives_come_by_rank_without_the_token_itself_beyond_them() -> None:
    scores = {9: FakeScore(-5.0, 40), 1: FakeScore(-0.1, 1), 2: FakeScore(-2.0, 2)}
    (only,) = to_outputs(
        request(num_logprobs=2),
        charge_output(token_ids=[9], logprobs=[scores]),
        queued_s=0.5,
        content_id=None,
    )
    assert only.logprob == -5.0
    assert only.top_logprobs == (
        TokenLogprob(token_id=1, logprob=-0.1),
        TokenLogprob(token_id=2, logprob=-2.0),
    )


def test_scores_of_the_prompt_come_first_and_once() -> None:
    rows = [None, {6: FakeScore(-1.0, 3), 8: FakeScore(-0.5, 1)}, {7: FakeScore(-0.2, 1)}]
    answer = FakeGenerated([FakeCompletion([4])], rows)
    asked = request(num_prompt_logprobs=1)
    scored, token = to_outputs(asked, answer, queued_s=0.5, content_id=None)
    assert scored.token_id is None
    assert token.token_id == 4
    prompt = scored.prompt_logprobs
    assert prompt is not None
    assert (prompt.start, prompt.logprobs, prompt.ranks) == (1, (-1.0, -0.2), (3, 1))
    assert (prompt.top_ids, prompt.top_logprobs) == ((8, 7), (-0.5, -0.2))
    assert len(to_outputs(asked, answer, queued_s=None, content_id=None)) == 1


@cases(
    "settings, expected",
    case("defaults", {}, {"max_model_len": -1, "trust_remote_code": False}),
    case("names of dtypes", {"dtype": "bf16"}, {"dtype": "bfloat16"}),
    case(
        "adapters, with buffers of a rank that vLLM has",
        {"enable_lora": True, "max_lora_rank": 20},
        {"enable_lora": True, "max_lora_rank": 32, "max_loras": 4},
    ),
    case("the pool is the cache", {"pool_bytes": 1000}, {"kv_cache_memory_bytes": 1000}),
    case("else an eighth of the reservation", {}, {"kv_cache_memory_bytes": 128 << 20}),
    case("nothing is compiled for CPUs", {}, {"enforce_eager": True}),
    case("unless it is asked for", {"enforce_eager": False}, {"enforce_eager": False}),
)
def test_engine_arguments(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    given = EngineSettings(**settings)
    arguments = engine_arguments("/model", given, gpu=None, memory_bytes=1 << 30)
    assert {name: arguments[name] for name in expected} == expected


@cases(
    "settings, devices, expected",
    case("each reserved accelerator", {"accelerators": 4}, 4, {"tensor_parallel_size": 4}),
    case("ranks of stages", {"accelerators": 4, "degree": 2, "pipeline_parallel": 2}, 4,
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
    case("one accelerator", {"accelerators": 1}, 1, {}),
    case("two ranks on CPUs", {"accelerators": 2, "degree": 2}, 0, {}),
    case("two ranks on CPUs for the operator", {"degree": 2, "cpu_ranks": True}, 0,
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 1}),
)  # fmt: skip
def test_ranks(settings: dict[str, Any], devices: int, expected: dict[str, Any]) -> None:
    given, choice = follow_choice(EngineSettings(**settings), devices=devices, cpus=2)
    arguments = engine_arguments("/model", given, gpu=None, memory_bytes=1 << 30)
    found = {name: it for name, it in arguments.items() if name.endswith("parallel_size")}
    assert expected.items() <= found.items()
    assert bool(found) is bool(expected)
    assert choice.ranks == found.get("tensor_parallel_size", 1)


def test_without_lora_there_are_no_buffers_for_it() -> None:
    given = EngineSettings()
    assert "enable_lora" not in engine_arguments("/model", given, gpu=None, memory_bytes=1 << 30)


@cases(
    "settings, text",
    case("our own quantization", {"weight_dtype": "int8"}, "quantize is int8"),
    case("our own kernels", {"kernels": "torch"}, "kernels is 'torch', which is not passed"),
    case("vectors", {"pooled": PooledTask(task="embed")}, "task is 'embed', which is not passed"),
    case(
        "a merged adapter",
        {"enable_lora": True, "fuse_adapter": "es"},
        "fuse_adapter is 'es', which is our own engine's; vLLM applies adapters unmerged",
    ),
    case("a rank beyond vLLM's", {"enable_lora": True, "max_lora_rank": 1024}, "at most 512"),
)
def test_refused_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        engine_arguments("/model", EngineSettings(**settings), gpu=None, memory_bytes=1 << 30)


@cases(
    "asked, given",
    case("less than its share", 0.25, 0.25),
    case("more than its share", 0.9, 0.5),
)
def test_a_copy_takes_no_more_than_its_share_of_a_gpu(asked: float, given: float) -> None:
    settings = EngineSettings(device_share=0.5, vllm={"gpu_memory_utilization": asked})
    gpu = Gpu(name="NVIDIA A10G", memory_bytes=24 << 30)
    arguments = engine_arguments("/model", settings, gpu=gpu, memory_bytes=1 << 30)
    assert arguments["gpu_memory_utilization"] == given


def test_a_model_that_names_another_model_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"hidden_size": 8}')
    assert read_own_config(tmp_path) == {"hidden_size": 8}
    config.write_text('{"speculators_config": {"verifier": {"name_or_path": "/etc"}}}')
    with pytest.raises(ValueError, match="speculators_config, which names another model"):
        read_own_config(tmp_path)


def test_outputs_are_different_or_equal() -> None:
    one, later = (Output(request_id="r", token_id=5, queued_s=it) for it in (0.1, 0.2))
    other = Output(request_id="r", token_id=6)
    assert (one == later, one != later) == (True, False)
    assert (one == other, one != other) == (False, True)
