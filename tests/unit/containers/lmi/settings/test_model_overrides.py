"""Options that replace members of the model's config.json and generation_config.json."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import ask, config, fake, server
from transformers import GenerationConfig

from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.request.sampling import NEUTRAL, SamplingDefaults
from hostelry.containers.lmi.settings.model_overrides import (
    model_defaults,
    overlay,
    override_members,
    sampling_defaults,
)
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.engine.request import Request

QWEN3 = {
    "bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
    "pad_token_id": 151643, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
    "transformers_version": "4.51.0",
}  # fmt: skip
NAMES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens")
LINEAR = {"rope_type": "linear", "factor": 2.0}


def written(folder: Path, values: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


@cases(
    "values",
    case("Qwen3's own file", QWEN3),
    case("few members", {"temperature": 0.1, "max_new_tokens": 64}),
    case("a null", {"top_k": None, "min_p": 0.05, "repetition_penalty": 1.1}),
    case("nothing of sampling", {"eos_token_id": 2}),
)
def test_the_defaults_are_what_transformers_reads_and_vllm_takes(
    values: dict[str, Any], tmp_path: Path
) -> None:
    oracle = GenerationConfig.from_pretrained(written(tmp_path, values)).to_diff_dict()
    taken = {name: oracle[name] for name in NAMES if oracle.get(name) is not None}
    found = sampling_defaults(values, {}, "generation_config.json", bounds_all=False)
    assert found == SamplingDefaults(**taken)


@cases(
    "properties, expected",
    case("auto", "", SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95)),
    case("vLLM's own", "option.generation_config=vllm", NEUTRAL),
    case("a rolling batch reads none", "option.rolling_batch=vllm", NEUTRAL),
    case(
        "unless it is asked for",
        "option.rolling_batch=vllm\noption.generation_config=auto",
        SamplingDefaults(temperature=0.6, top_k=20, top_p=0.95),
    ),
    case(
        "overrides win, and bound every answer",
        'option.override_generation_config={"temperature": 0.2, "max_new_tokens": 9}',
        SamplingDefaults(
            temperature=0.2, top_k=20, top_p=0.95, max_new_tokens=9, most_new_tokens=9
        ),
    ),
    case(
        "a folder's file bounds every answer",
        "option.generation_config=other",
        SamplingDefaults(max_new_tokens=7, most_new_tokens=7, top_k=0),
    ),
)
def test_sources(properties: str, expected: SamplingDefaults, tmp_path: Path) -> None:
    written(tmp_path, QWEN3)
    written(tmp_path / "other", {"max_new_tokens": 7, "top_k": -1})
    settings = dataclasses.replace(config(properties), model_dir=tmp_path)
    assert model_defaults(settings, tmp_path) == expected


@cases(
    "values, message",
    case("sign", {"temperature": -1}, "temperature in generation_config.json is '-1'"),
    case("no mass", {"top_p": 0}, "top_p"),
    case("a fraction", {"top_k": 1.5}, "a whole number"),
    case("a flag", {"top_k": True}, "top_k"),
    case("no number", {"temperature": float("nan")}, "temperature"),
    case("no tokens", {"max_new_tokens": 0}, "max_new_tokens"),
    case("a long text", {"top_p": "a" * 9000}, "option.generation_config=vllm"),
    case("a list", [1], "no JSON object"),
)
def test_a_file_out_of_range_ends_the_start(values: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        model_defaults(config(), written(tmp_path, values))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", ["../x", "/etc", "missing"])
def test_a_generation_config_lies_in_the_model_folder(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="inside the model folder"):
        model_defaults(config(f"option.generation_config={value}"), tmp_path)


DEFAULTS = SamplingDefaults(
    temperature=0.6, top_k=20, top_p=0.95, min_p=0.1, repetition_penalty=1.1, max_new_tokens=5
)


def with_defaults(defaults: SamplingDefaults, properties: str = "") -> LmiServer:
    served = server(settings=config(properties))
    assert served.model is not None
    served.model = replace(served.model, defaults=defaults)
    return served


def asked(served: LmiServer, body: dict[str, Any]) -> Request:
    assert ask(served, "/invocations", body).status == 200
    return fake(served).seen[-1]


CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    "body", [CHAT, {"prompt": "hi"}, {"inputs": "hi"}], ids=["messages", "prompt", "inputs"]
)
def test_a_request_that_does_not_say_gets_the_defaults(body: dict[str, Any]) -> None:
    sampling = asked(with_defaults(DEFAULTS), body).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 20, 0.95)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)


def test_a_request_that_does_say_wins() -> None:
    given = {"temperature": 0, "top_k": -1, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
    sampling = asked(with_defaults(DEFAULTS), {"prompt": "hi", **given}).sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0, 0, 1)
    assert (sampling.min_p, sampling.repetition_penalty) == (0, 1)


def test_inputs_that_do_not_sample_are_greedy_whatever_the_defaults() -> None:
    body = {"inputs": "hi", "parameters": {"do_sample": False}}
    assert asked(with_defaults(DEFAULTS), body).sampling.temperature == 0


@pytest.mark.parametrize(
    ("defaults", "body", "tokens"),
    [
        pytest.param(DEFAULTS, CHAT, 5, id="a chat without a number"),
        pytest.param(DEFAULTS, {**CHAT, "max_tokens": 8}, 8, id="a chat with one"),
        pytest.param(DEFAULTS, {"prompt": "hi"}, 16, id="a completion keeps its own default"),
        pytest.param(DEFAULTS, {"inputs": "hi"}, 30, id="and so does LMI's schema"),
        *(
            pytest.param(SamplingDefaults(most_new_tokens=3), body, 3, id=f"a bound of {kind}")
            for kind, body in (
                ("chats", {**CHAT, "max_tokens": 8}), ("open chats", CHAT),
                ("completions", {"prompt": "hi"}), ("inputs", {"inputs": "hi"}),
            )
        ),
    ],
)  # fmt: skip
def test_how_many_tokens_an_answer_has(
    defaults: SamplingDefaults, body: dict[str, Any], tokens: int
) -> None:
    assert asked(with_defaults(defaults), body).sampling.max_new_tokens == tokens


def test_seeds_of_requests_that_give_none_are_drawn_from_the_option() -> None:
    def seeds(properties: str) -> list[int | None]:
        served = server(settings=config(properties))
        for _ in range(3):
            ask(served, "/invocations", {"inputs": "hi"})
        return [it.sampling.seed for it in fake(served).seen]

    first = seeds("option.seed=7")
    assert first == seeds("option.seed=7")
    assert len(set(first)) == 3
    assert first != seeds("option.seed=8")
    assert first != seeds("")


def test_the_most_alternatives_are_the_options() -> None:
    served = server(settings=config("option.max_logprobs=2"))
    for body in (
        {"prompt": "a", "logprobs": 3},
        {**CHAT, "logprobs": True, "top_logprobs": 3},
        {"inputs": "a", "parameters": {"details": True, "top_n_tokens": 3}},
    ):
        answer = ask(served, "/invocations", body)
        assert answer.status == 424
        assert "at most 2" in answer.text


@cases(
    "given, overrides, expected",
    case("another member", {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
    case("one in its place", {"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"y": 2}}),
    case("a scaling keeps the base", {"rope_theta": 5.0, "rope_scaling": None},
        {"rope_scaling": LINEAR},
        {"rope_theta": 5.0, "rope_scaling": {**LINEAR, "rope_theta": 5.0}}),
    case("also of a newer file", {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
        {"rope_scaling": LINEAR},
        {"rope_theta": 5.0, "rope_scaling": {**LINEAR, "rope_theta": 5.0}}),
    case("a base keeps the scaling", {"rope_parameters": {**LINEAR, "rope_theta": 5.0}},
        {"rope_theta": 9.0}, {"rope_theta": 9.0, "rope_scaling": {**LINEAR, "rope_theta": 9.0}}),
    case("no scaling", {"rope_scaling": LINEAR, "rope_theta": 5.0}, {"rope_scaling": None},
        {"rope_theta": 5.0}),
    case("a base where none was", {}, {"rope_theta": 9.0}, {"rope_theta": 9.0}),
)  # fmt: skip
def test_members_are_replaced(
    given: dict[str, Any], overrides: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert override_members(given, overrides) == expected


def test_a_rope_of_several_kinds_of_layers_is_refused() -> None:
    rope = {"full_attention": {"rope_theta": 1.0}, "sliding_attention": {"rope_theta": 2.0}}
    with pytest.raises(ConfigurationError, match="kind of layer"):
        override_members({"rope_parameters": rope}, {"rope_theta": 3.0})


def test_the_engine_is_given_a_folder_with_the_new_members(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "m", tmp_path / "s"
    folder.mkdir()
    scratch.mkdir()
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "model.safetensors").write_bytes(b"weights")
    assert overlay(folder, {}, scratch) == folder
    made = overlay(folder, {"b": 2}, scratch)
    assert json.loads((made / "config.json").read_text()) == {"a": 1, "b": 2}
    assert (made / "model.safetensors").read_bytes() == b"weights"
    assert json.loads((folder / "config.json").read_text()) == {"a": 1}


@cases(
    "properties, expected",
    case("an object", 'option.hf_overrides={"a": 1}', {"a": 1}),
    case("vLLM's older names", 'option.rope_scaling={"type": "linear"}\noption.rope_theta=1e6',
        {"rope_scaling": {"type": "linear"}, "rope_theta": 1e6}),
)  # fmt: skip
def test_options(properties: str, expected: dict[str, Any]) -> None:
    assert config(properties).config_overrides == expected


@pytest.mark.parametrize(
    "line",
    [
        "option.hf_overrides=[1]", "option.hf_overrides={", "option.rope_theta=0",
        "option.rope_theta=inf", "option.rope_scaling=linear",
        "option.hf_overrides=" + '{"a":' * 40 + "1" + "}" * 40,
    ],
)  # fmt: skip
def test_what_is_no_override_ends_the_start(line: str) -> None:
    with pytest.raises(ConfigurationError):
        config(line)
