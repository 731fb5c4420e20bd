"""Adapters that the options name."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.containers.lmi.tiny import config

from hostelry.containers.lmi.lifecycle import first_adapters
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.option_values import LoraModule, parse_modules

TWO = (LoraModule("a", "x"), LoraModule("b", "y"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a=x b=y", TWO, id="pairs"),
        pytest.param("a=x,b=y", TWO, id="with commas, as TGI has them"),
        pytest.param('{"name":"a","path":"x"} {"name":"b","path":"y"}', TWO, id="objects"),
        pytest.param(
            '[{"name":"a","path":"x","base_model_name":"m"},{"name":"b","path":"y"}]', TWO,
            id="a list",
        ),
        pytest.param("o/n", (LoraModule("o/n", "o/n"),), id="an id alone"),
        pytest.param("a=b=c", (LoraModule("a", "b=c"),), id="a path with the mark"),
    ],
)  # fmt: skip
def test_forms(text: str, expected: tuple[LoraModule, ...]) -> None:
    assert parse_modules(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a=", "=x", "a=x a=y", "[]", '{"name":"a"}', '{"name":"a","path":"x","rank":1}', "{",
        "[" * 5000, '{"a":' * 5000, " ".join(f"a{n}=x" for n in range(1025)),
    ],
)  # fmt: skip
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option\.lora_modules"):
        config(f"option.enable_lora=true\noption.lora_modules={text}")


def test_adapters_need_lora() -> None:
    with pytest.raises(ConfigurationError, match="enable_lora=true"):
        config("option.lora_modules=a=x")


def adapters(folder: Path, modules: str) -> tuple[list[tuple[str, Path]], list[tuple[str, str]]]:
    settings = config(f"option.enable_lora=true\noption.lora_modules={modules}")
    return first_adapters(replace(settings, model_dir=folder), folder)


def test_a_folder_is_read_at_the_start_and_an_id_is_fetched(tmp_path: Path) -> None:
    for name in ("adapters/es", "loras/fr"):
        (tmp_path / name).mkdir(parents=True)
    local, remote = adapters(tmp_path, "fr=/opt/ml/model/loras/fr de=org/german@v2")
    assert local == [("es", tmp_path / "adapters/es"), ("fr", tmp_path / "loras/fr")]
    assert remote == [("de", "hf://org/german@v2")]


@pytest.mark.parametrize("modules", ["a=/etc", "a=../x", "a=nothing", "a=s3://b/k", "a/b=x"])
def test_other_places_and_names_are_refused(modules: str, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(ConfigurationError, match="lora_modules"):
        adapters(tmp_path, modules)
