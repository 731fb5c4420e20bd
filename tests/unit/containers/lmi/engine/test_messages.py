"""Frames between the two processes, and where a model's files are looked for."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.containers.lmi.engine.messages import (
    FROM_ENGINE,
    TO_ENGINE,
    Abort,
    Add,
    Done,
    Refused,
    StartEngine,
    Stepped,
    Unframer,
    frame,
)
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.model_source import (
    adapter_folders,
    local_model,
    locate_draft_model,
    model_folder,
)
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.engine.config import PooledTask
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, TokenLogprob
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy

REQUEST = Request(
    id="r", prompt_token_ids=(1, 2), sampling=SamplingParams(seed=2**63 - 1), adapter="es"
)
OUTPUT = Output(
    request_id="r",
    token_id=5,
    logprob=-0.25,
    top_logprobs=(TokenLogprob(token_id=5, logprob=-0.25),),
    finish_reason=FinishReason.EOS,
)


def test_messages_arrive_as_they_were_sent() -> None:
    settings = EngineSettings(
        adapter_cache_folder=Path("/cache"),
        pooled=PooledTask(task="embed"),
        tenants=TenantPolicies(table={"a": TenantPolicy(weight=2)}),
    )
    start = StartEngine("/model", settings, (("es", "/es"),))
    for message in (start, Add((REQUEST,)), Abort(("r",))):
        assert TO_ENGINE.decode(frame(message)[4:]) == message
    for answer in (Stepped((OUTPUT,)), Refused(("r",), "request", "why"), Done(3)):
        assert FROM_ENGINE.decode(frame(answer)[4:]) == answer


@given(cuts=st.lists(st.integers(1, 40)), count=st.integers(0, 6))
def test_frames_are_found_however_the_stream_is_cut(cuts: list[int], count: int) -> None:
    messages = [Abort((str(number),) * number) for number in range(count)]
    stream = b"".join(frame(message) for message in messages)
    unframer = Unframer()
    bodies = []
    for cut in cuts:
        bodies += unframer.feed(stream[:cut])
        stream = stream[cut:]
    bodies += unframer.feed(stream)
    assert [TO_ENGINE.decode(body) for body in bodies] == messages


@cases(
    "options, expected",
    case("in one object", 'speculative_config={"model": "draft", "num_speculative_tokens": 2}',
        {"speculative_config": {"model": "MODEL/draft", "num_speculative_tokens": 2}}),
    case("by vLLM's short names", "spec_model=/opt/ml/model/draft", {"spec_model": "MODEL/draft"}),
    case("without a model", 'speculative_config={"method": "ngram"}',
        {"speculative_config": {"method": "ngram"}}),
    case("another option", "block_size=16", {"block_size": 16}),
)  # fmt: skip
def test_a_draft_model_is_a_folder_inside_the_model_folder(
    tmp_path: Path, options: str, expected: dict[str, Any]
) -> None:
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text("{}")
    config = resolve_config({}, f"option.{options}", (), tmp_path, 4)
    given = locate_draft_model(config.engine, config).vllm
    assert str(given).replace(str(tmp_path), "MODEL") == str(expected)


@cases(
    "model",
    case("outside", "../draft"),
    case("elsewhere", "/srv/draft"),
    case("an id of the hub", "org/draft"),
)
def test_a_draft_model_elsewhere_is_refused(tmp_path: Path, model: str) -> None:
    config = resolve_config({"OPTION_SPEC_MODEL": model}, "", (), tmp_path, 4)
    with pytest.raises(ConfigurationError, match="inside the model folder"):
        locate_draft_model(config.engine, config)


def test_local_models(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    config = LmiConfig(model_dir=tmp_path, artifact_folders=("/cache/x",))
    assert local_model(config, "base") == tmp_path / "base"
    assert local_model(config, "/opt/ml/model/base") == tmp_path / "base"
    assert local_model(config, "/opt/ml/model") == tmp_path
    assert local_model(config, "/cache/x") == Path("/cache/x")
    assert local_model(config, "org/name") is None


@cases(
    "model_id, message",
    case("an S3 prefix", "s3://bucket/prefix", "before this server starts"),
    case("an empty model folder", None, "holds no config.json"),
    case("a folder that is not", "/opt/ml/model/none", "holds no config.json"),
    case("a folder of this machine", "/etc", "must be an id of the hub"),
    case("a folder beside it", "../other", "must be an id of the hub"),
    case("by way of its own", "base/../../other", "must be an id of the hub"),
    case("by way of the container's", "/opt/ml/model/../other", "must be an id"),
    case("a link that leads out", "link", "must be an id of the hub"),
    case("a NUL", "a\0b", "must be an id of the hub"),
)
def test_a_model_that_cannot_be_found(model_id: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(ConfigurationError, match=message):
        model_folder(LmiConfig(model_dir=tmp_path, model_id=model_id))


def test_adapters_are_found_beside_the_properties_and_in_the_model(tmp_path: Path) -> None:
    for name in ("one/adapters/es", "one/adapters/.cache", "two/adapters/fr"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/adapters/readme.txt").write_text("x")
    adapters = PurePosixPath("adapters")
    found = adapter_folders((tmp_path / "one", tmp_path / "two", tmp_path / "one"), adapters)
    assert [name for name, _ in found] == ["es", "fr"]
    (tmp_path / "two/adapters/es").mkdir()
    with pytest.raises(ConfigurationError, match="adapter es lies in both"):
        adapter_folders((tmp_path / "one", tmp_path / "two"), adapters)


def test_adapters_are_found_in_the_folder_that_the_option_names(tmp_path: Path) -> None:
    for name in ("adapters/es", "loras/mine/fr"):
        (tmp_path / name).mkdir(parents=True)
    settings = resolve_config({}, "option.adapters=loras/mine", (), tmp_path, 1)
    found = adapter_folders((tmp_path,), settings.adapters)
    assert found == [("fr", tmp_path / "loras/mine/fr")]
