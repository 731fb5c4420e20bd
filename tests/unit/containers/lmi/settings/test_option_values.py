"""Options whose value has parts: adapters of the start, the merged adapter, images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import config

from hostelry.containers.lmi.lifecycle import check_fused, first_adapters
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.option_values import LoraModule, parse_modules

TWO = (LoraModule("a", "x"), LoraModule("b", "y"))
ALLOWED, WANTED = "HOSTELRY_MEDIA_DOMAINS", "OPTION_ALLOWED_MEDIA_DOMAINS"
HOSTS = frozenset({"a.example", "b"})


@cases(
    "text, expected",
    case("pairs", "a=x b=y", TWO),
    case("with commas, as TGI has them", "a=x,b=y", TWO),
    case("objects", '{"name":"a","path":"x"} {"name":"b","path":"y"}', TWO),
    case("a list", '[{"name":"a","path":"x","base_model_name":"m"},{"name":"b","path":"y"}]', TWO),
    case("an id alone", "o/n", (LoraModule("o/n", "o/n"),)),
    case("a path with the mark", "a=b=c", (LoraModule("a", "b=c"),)),
)  # fmt: skip
def test_forms_of_modules(text: str, expected: tuple[LoraModule, ...]) -> None:
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


@cases(
    "options, most, domains",
    case("neither", {}, None, frozenset()),
    case("an object", {"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 2, "video": 0}'}, 2, frozenset()),
    case("a pair", {"OPTION_LIMIT_MM_PER_PROMPT": "image=2"}, 2, frozenset()),
    case("a list", {ALLOWED: '["A.example", "b"]'}, None, HOSTS),
    case("commas", {ALLOWED: "a.example, b,"}, None, HOSTS),
    case("hosts of the author alone", {WANTED: '["b"]'}, None, frozenset()),
    case("the author leaves one out", {ALLOWED: "a.example,b", WANTED: '["b", "c"]'}, None,
        frozenset({"b"})),
)  # fmt: skip
def test_forms_of_image_limits(
    options: dict[str, Any], most: int | None, domains: frozenset[str]
) -> None:
    found = config(**options)
    assert (found.engine.max_images, found.media_domains) == (most, domains)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 1, "video": 1}'}, "video cannot be sent"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": '{"image": 257}'}, "1 to 256"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": "image=x"}, "image=x"),
        ({"OPTION_LIMIT_MM_PER_PROMPT": "{"}, "LIMIT_MM_PER_PROMPT"),
        ({WANTED: "https://a"}, "no host name"),
        ({ALLOWED: "*"}, "no host name"),
        ({ALLOWED: "["}, ALLOWED),
        ({WANTED: "[" * 5000}, WANTED),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(**options)
    assert message.lower() in str(caught.value).lower()


@pytest.mark.parametrize("name", ["es", "customer-7", "org.es_v2", "true"])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    found = config(f"option.enable_lora=true\noption.fuse_adapter={name}")
    assert found.engine.fuse_adapter == name


@cases(
    "text, message",
    case("two names", "es,fr", "the name of one adapter"),
    case("two names, with a space", "es fr", "the name of one adapter"),
    case("a list", '["es"]', "the name of one adapter"),
    case("an object", '{"name":"es"}', "the name of one adapter"),
    case("a name and a path", "es=/path", "the name of one adapter"),
    case("a path", "../es", "the name of one adapter"),
    case("a control character", "e\x07s", "the name of one adapter"),
    case("a quantized base", "es\noption.quantize=int8", "8-bit weights are too coarse"),
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"option\.fuse_adapter.*{message}"):
        config(f"option.enable_lora=true\noption.fuse_adapter={text}")


def test_it_needs_lora() -> None:
    with pytest.raises(ConfigurationError, match=r"option\.fuse_adapter.*enable_lora=true"):
        config("option.fuse_adapter=es")


def test_an_adapter_that_does_not_exist_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match=r"'de', which is none of .*: es, fr"):
        check_fused("de", ["es", "fr"])
    check_fused("es", ["es", "fr"])
    check_fused(None, ["es"])
    check_fused("de", [])  # a model without first adapters gets them while it runs
    assert "fuse_adapter is de: it is merged once it is registered" in caplog.text
