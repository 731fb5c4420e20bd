"""The option that merges one adapter."""

import pytest
from tests.unit.containers.lmi.tiny import config

from hostelry.containers.lmi.lifecycle import check_fused
from hostelry.containers.lmi.settings.option_reader import ConfigurationError


@pytest.mark.parametrize("name", ["es", "customer-7", "org.es_v2", "true"])
def test_a_name_is_taken_as_it_is(name: str) -> None:
    assert config(f"option.enable_lora=true\noption.fuse_adapter={name}").fuse_adapter == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("es,fr", "the name of one adapter", id="two names"),
        pytest.param("es fr", "the name of one adapter", id="two names, with a space"),
        pytest.param('["es"]', "the name of one adapter", id="a list"),
        pytest.param('{"name":"es"}', "the name of one adapter", id="an object"),
        pytest.param("es=/path", "the name of one adapter", id="a name and a path"),
        pytest.param("../es", "the name of one adapter", id="a path"),
        pytest.param("e\x07s", "the name of one adapter", id="a control character"),
        pytest.param(
            "es\noption.quantize=int8", "8-bit weights are too coarse", id="a quantized base"
        ),
    ],
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
