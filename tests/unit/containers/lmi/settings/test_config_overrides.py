"""config.json under hf_overrides, rope_scaling and rope_theta."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.containers.lmi.tiny import config

from hostelry.containers.lmi.settings.model_overrides import overlay, override_members
from hostelry.containers.lmi.settings.option_reader import ConfigurationError

LINEAR = {"rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("given", "overrides", "expected"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="another member"),
        pytest.param({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"y": 2}}, id="one in its place"),
        pytest.param(
            {"rope_theta": 5.0, "rope_scaling": None}, {"rope_scaling": LINEAR},
            {"rope_theta": 5.0, "rope_scaling": {**LINEAR, "rope_theta": 5.0}},
            id="a scaling keeps the base",
        ),
        pytest.param(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
            {"rope_scaling": LINEAR},
            {"rope_theta": 5.0, "rope_scaling": {**LINEAR, "rope_theta": 5.0}},
            id="also of a newer file",
        ),
        pytest.param(
            {"rope_parameters": {**LINEAR, "rope_theta": 5.0}}, {"rope_theta": 9.0},
            {"rope_theta": 9.0, "rope_scaling": {**LINEAR, "rope_theta": 9.0}},
            id="a base keeps the scaling",
        ),
        pytest.param(
            {"rope_scaling": LINEAR, "rope_theta": 5.0}, {"rope_scaling": None},
            {"rope_theta": 5.0}, id="no scaling",
        ),
        pytest.param({}, {"rope_theta": 9.0}, {"rope_theta": 9.0}, id="a base where none was"),
    ],
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


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        pytest.param('option.hf_overrides={"a": 1}', {"a": 1}, id="an object"),
        pytest.param(
            'option.rope_scaling={"type": "linear"}\noption.rope_theta=1e6',
            {"rope_scaling": {"type": "linear"}, "rope_theta": 1e6}, id="vLLM's older names",
        ),
    ],
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
