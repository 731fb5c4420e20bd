"""Variables of vLLM's and TGI's images."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import ask, ids, server

from hostelry.containers.lmi.__main__ import arguments, image_kind, read_config
from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_terms import Backend
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.options import TGI_MANNERS, as_lmi, as_vllm

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
# Every SM_VLLM_* variable of aws-samples/sagemaker-genai-hosting-examples (34 files, November 2026)
# that asks for nothing but speed, with a value that is there.
NOTEBOOKS = {
    "SM_VLLM_MODEL": "/opt/ml/model", "SM_VLLM_TENSOR_PARALLEL_SIZE": "4",
    "SM_VLLM_MAX_MODEL_LEN": "32768", "SM_VLLM_MAX_NUM_SEQS": "4",
    "SM_VLLM_GPU_MEMORY_UTILIZATION": "0.9", "SM_VLLM_DTYPE": "bfloat16",
    "SM_VLLM_TRUST_REMOTE_CODE": "true", "SM_VLLM_ENABLE_EXPERT_PARALLEL": "true",
    "SM_VLLM_KV_CACHE_DTYPE": "auto", "SM_VLLM_SPECULATIVE_CONFIG": '{"method": "mtp"}',
    "SM_VLLM_MAX_NUM_BATCHED_TOKENS": "8192", "SM_VLLM_ENABLE_PREFIX_CACHING": "",
    "SM_VLLM_ENABLE_CHUNKED_PREFILL": "", "SM_VLLM_DATA_PARALLEL_SIZE": "4",
    "SM_VLLM_COMPILATION_CONFIG": '{"cudagraph_mode": "PIECEWISE"}', "SM_VLLM_BLOCK_SIZE": "256",
    "SM_VLLM_NO_ENABLE_FLASHINFER_AUTOTUNE": "true", "SM_VLLM_MM_ENCODER_TP_MODE": "data",
    "SM_VLLM_LIMIT_MM_PER_PROMPT": "image=2", "SM_VLLM_ENFORCE_EAGER": "true",
    "SM_VLLM_MOE_BACKEND": "triton", "SM_VLLM_SWAP_SPACE": "4",
}  # fmt: skip


def resolve(
    env: dict[str, str], image: ImageKind = ImageKind.VLLM, listing: Collection[str] = ()
) -> LmiConfig:
    given = as_vllm(env, listing) if image is ImageKind.VLLM else as_lmi(env)
    return resolve_config(given, "", listing, Path("/model"), 4, image)


@cases(
    "env, field, expected",
    case("the model", {"SM_VLLM_MODEL": "a/b"}, "model_id", "a/b"),
    case("by which it is called", {"SM_VLLM_MODEL": "a/b"}, "model_name", "a/b"),
    case("or by its folder", {}, "model_name", "/opt/ml/model"),
    case("several names", {"SM_VLLM_SERVED_MODEL_NAME": '["x", "y"]'}, "served", ("x", "y")),
    case("a length", {"SM_VLLM_MAX_MODEL_LEN": "99"}, "max_model_len", 99),
    case("LMI's other name", {"SM_VLLM_MAX_NUM_SEQS": "9"}, "max_batch_size", 9),
    case("vLLM's own batch", {}, "max_batch_size", 256),
    case("a bare flag", {"SM_VLLM_ENABLE_LORA": ""}, "enable_lora", True),
    case("a flag not set", {"SM_VLLM_ENABLE_LORA": "False"}, "enable_lora", False),
    case("a negation", {"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "true"}, "prefix_cache", False),
    case("a seed", {"SM_VLLM_SEED": "3"}, "seed", 3),
    case("OpenAI's forms", {}, "dialect", Surface.OPENAI),
    case("the model's own defaults", {}, "generation_config", "auto"),
    case("after LMI's own variables", {"SM_VLLM_DTYPE": "half", "OPTION_DTYPE": "bf16"}, "dtype",
        "bf16"),
)  # fmt: skip
def test_arguments_of_vllm(env: dict[str, str], field: str, expected: Any) -> None:
    config = resolve(env)
    assert getattr(config if hasattr(config, field) else config.engine, field) == expected


@cases(
    "env, listing, expected",
    case("an id without a folder", {"HF_MODEL_ID": "a/b"}, (), "a/b"),
    case("a folder comes first", {"HF_MODEL_ID": "a/b"}, ("config.json",), None),
    case("where it holds a model", {"HF_MODEL_ID": "a/b"}, ("code",), "a/b"),
    case("the argument before both", {"HF_MODEL_ID": "a/b", "SM_VLLM_MODEL": "c/d"},
        ("config.json",), "c/d"),
)  # fmt: skip
def test_which_model_a_vllm_image_serves(
    env: dict[str, str], listing: tuple[str, ...], expected: str | None
) -> None:
    assert resolve(env, listing=listing).model_id == expected


def test_the_variables_of_awss_notebooks_are_known() -> None:
    warnings = resolve(NOTEBOOKS).find_warnings(Backend.HOSTELRY)
    assert not [it for it in warnings if "not a known" in it]
    settings = resolve(NOTEBOOKS)
    assert (settings.engine.dtype, settings.engine.max_batch_size) == ("bf16", 4)
    assert (settings.engine.max_batched_tokens, settings.engine.max_model_len) == (8192, 32768)


@pytest.mark.parametrize(
    "env",
    [
        {"SM_VLLM_KV_CACHE_DTYPE": "fp7"}, {"SM_VLLM_QUANTIZATION": "fp7"},
        {"SM_VLLM_TOKENIZER_MODE": "mistral"}, {"SM_VLLM_RUNNER": "pooling"},
        {"SM_VLLM_CONFIG": "/opt/ml/model/vllm_config.yaml"}, {"SM_VLLM_MAX_LOGPROBS": "257"},
    ],
    ids=lambda it: str(*it),
)  # fmt: skip
def test_those_that_change_answers_end_the_start(env: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(env)
    assert next(iter(env)) in str(caught.value)


def vllm(**env: str) -> LmiServer:
    return server({None: "hi"}, settings=resolve({"SM_VLLM_MODEL": "a/b", **env}))


@pytest.mark.parametrize("body", [CHAT, {"prompt": "x"}], ids=["messages", "prompt"])
def test_streams_of_a_vllm_image_are_events(body: dict[str, Any]) -> None:
    answer = ask(vllm(), "/invocations", {**body, "stream": True})
    assert answer.type.startswith("text/event-stream")
    assert answer.events[-1] == "[DONE]"
    assert answer.events[0]["model"] == "a/b"


def test_whole_answers_of_a_vllm_image_are_openais() -> None:
    answer = ask(vllm(), "/invocations", CHAT)
    assert answer.json["choices"][0]["message"]["content"] == "hi"
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    assert not answer.text.endswith("\n")


def test_errors_of_a_vllm_image_are_openais() -> None:
    answer = ask(vllm(), "/invocations", {**CHAT, "temperature": 9})
    assert (answer.status, answer.json["error"]["type"]) == (400, "BadRequestError")
    assert ask(vllm(), "/invocations", {**CHAT, "model": "c/d"}).status == 404
    assert ask(vllm(), "/invocations", {"x": 1}).json["error"]["code"] == 400


def test_a_broken_stream_of_a_vllm_image_ends_with_openais_error() -> None:
    settings = resolve({"SM_VLLM_MODEL": "a/b"})
    served = server(backend=FakeBackend({None: ids("abc")}, fail_after=2), settings=settings)
    events = ask(served, "/invocations", {**CHAT, "stream": True}).events
    assert events[-2]["error"]["code"] == 500
    assert events[-1] == "[DONE]"


def test_lmis_schema_is_served_there_too() -> None:
    assert ask(vllm(), "/invocations", {"inputs": "x"}).json["generated_text"] == "hi"


@cases(
    "env, field, expected",
    case("a length", {"MAX_TOTAL_TOKENS": "77"}, "max_model_len", 77),
    case("a body's size", {"PAYLOAD_LIMIT": "9"}, "max_request_bytes", 9),
    case("a type", {"DTYPE": "float16"}, "dtype", "fp16"),
    case("adapters", {"LORA_ADAPTERS": "a=b/c"}, "enable_lora", True),
    case("chats", {"MESSAGES_API_ENABLED": "true"}, "warnings", None),
    case("no defaults of the model's", {}, "generation_config", "vllm"),
)
def test_variables_of_tgi(env: dict[str, str], field: str, expected: Any) -> None:
    settings = resolve(env, ImageKind.TGI)
    if expected is None:
        assert not [it for it in settings.find_warnings(Backend.HOSTELRY) if "MESSAGES" in it]
    else:
        owner = settings if hasattr(settings, field) else settings.engine
        assert getattr(owner, field) == expected


def test_tgis_quantization_and_keys_are_refused() -> None:
    for env in ({"QUANTIZE": "eetq"}, {"API_KEY": "k"}, {"ROPE_FACTOR": "2.0"}):
        with pytest.raises(ConfigurationError):
            resolve(env, ImageKind.TGI)


def test_a_chats_stream_of_a_tgi_image_is_events_with_openais_reasons() -> None:
    served = server({None: "hi"}, settings=resolve({}, ImageKind.TGI))
    events = ask(served, "/invocations", {**CHAT, "stream": True}).events
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_flags_name_one_kind_of_image() -> None:
    assert image_kind(arguments([], {})) is ImageKind.LMI
    assert image_kind(arguments(["--vllm"], {})) is ImageKind.VLLM
    assert image_kind(arguments(["--tgi"], {})) is ImageKind.TGI
    with pytest.raises(ConfigurationError):
        image_kind(arguments(["--tgi", "--vllm"], {}))


@cases(
    "files, folder",
    case("one top folder", ["top/serving.properties", "top/config.json"], "top"),
    case("beside hidden files", ["top/config.json", ".DS_Store"], "top"),
    case("beside another file", ["top/config.json", "serving.properties"], ""),
    case("two folders", ["a/config.json", "b/config.json"], ""),
    case("a folder that holds no model", ["adapters/x/adapter_config.json"], ""),
    case("no folder", ["config.json"], ""),
)
def test_a_model_in_the_one_folder_of_its_archive_is_found(
    files: list[str], folder: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("option.dtype=bf16" if "serving" in name else "{}")
    settings = read_config({}, tmp_path)
    assert settings.model_dir == (tmp_path / folder if folder else tmp_path)
    assert settings.engine.dtype == ("bf16" if "serving" in str(files) else "auto")


def test_a_link_is_no_top_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "top").symlink_to(tmp_path / "other")
    assert read_config({}, tmp_path / "model").model_dir == tmp_path / "model"


@cases(
    "given, expected",
    case("nothing but TGI's manners", {}, {}),
    case(
        "TGI's names as LMI's",
        {"MAX_TOTAL_TOKENS": "512", "DTYPE": "bfloat16"},
        {"OPTION_MAX_MODEL_LEN": "512", "OPTION_DTYPE": "bfloat16"},
    ),
    case(
        "LMI's own name wins",
        {"DTYPE": "float16", "OPTION_DTYPE": "fp32"},
        {"OPTION_DTYPE": "fp32"},
    ),
    case("an empty one is unset", {"QUANTIZE": ""}, {}),
    case("manners as asked", {"OPTION_TGI_COMPAT": "false"}, {"OPTION_TGI_COMPAT": "false"}),
)
def test_the_variables_of_a_tgi_image_are_those_of_lmi(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert as_lmi(given) == {**given, **TGI_MANNERS, **expected}
