"""The environment of vLLM, and the errors of its start."""

import json
import logging
import logging.config
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.first_error import (
    ERROR_FILE,
    LOGGING_FILE,
    MAX_FAILURE_CHARACTERS,
    failure_text,
    first_error,
    names_unknown_model,
    write_logging,
)
from hostelry.containers.lmi.vllm.launch import vllm_environment


@cases(
    "error, text",
    case("one line", ValueError("no\n  kernel"), "vLLM: ValueError: no kernel"),
    case(
        "without pydantic's frame",
        ValueError(
            "1 validation error for ModelConfig\n  Value error, model type `oracle` is not"
            " known [type=value_error, input_value=x]\n  For further information"
        ),
        "vLLM: ValueError: model type `oracle` is not known",
    ),
    case("bounded", OSError("x" * 5000), "vLLM: OSError: " + "x" * 300),
)
def test_a_failure_of_vllm_in_short(error: Exception, text: str) -> None:
    assert failure_text(error) == text


@cases(
    "text, is_unknown",
    case("no class", "vLLM: ValueError: Model architectures [X] are not supported for now", True),
    case("no type", "vLLM: ValueError: model type `x` but Transformers does not recognize this "
        "architecture.", True),
    case("no class is named", "vLLM: ValueError: No model architectures are specified", True),
    case("no memory", "vLLM: ValueError: No available memory for the cache blocks.", False),
    case("an option", "vLLM: ValueError: max_loras must be at least 1", False),
)  # fmt: skip
def test_a_model_that_vllm_does_not_know(text: str, is_unknown: bool) -> None:
    assert names_unknown_model(text) is is_unknown


def test_vllm_finds_our_package_and_nothing_else_of_ours() -> None:
    inherited = {"PATH": "/bin", "PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours", "HF_TOKEN": "t"}
    made = vllm_environment(
        inherited, EngineSettings(num_threads=3), Path("/r/vllm"), Path("/tmp/place")
    )
    assert made["PYTHONPATH"] == "/tmp/place/path"
    assert "VIRTUAL_ENV" not in made
    assert (made["HF_TOKEN"], made["OMP_NUM_THREADS"]) == ("t", "3")
    assert made["VLLM_PLUGINS"] == ""


def test_sockets_have_a_path_short_enough() -> None:
    place = Path("/" + "long/" * 30 + "place")
    made = vllm_environment({}, EngineSettings(), Path("/r/vllm"), place)
    assert made["VLLM_RPC_BASE_PATH"] == "/tmp"


def test_the_first_exception_is_kept_and_others_are_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_logging(tmp_path)
    assert first_error(tmp_path) is None
    logging.config.dictConfig(json.loads((tmp_path / LOGGING_FILE).read_text()))
    log = logging.getLogger("vllm.worker")
    try:
        log.error("words alone")
        assert first_error(tmp_path) is None
        for text in ("no kernel\nfor fp8", "initialization failed"):
            log.error("failed", exc_info=RuntimeError(text))
    finally:
        logging.getLogger("vllm").handlers.clear()
    found = first_error(tmp_path)
    assert found == "RuntimeError: no kernel\nfor fp8"
    later = RuntimeError("initialization failed")
    assert failure_text(later, found) == "vLLM: RuntimeError: no kernel for fp8"
    assert "words alone" in capfd.readouterr().err


@cases(
    "content, length",
    case("a long one", b"a" * 100_000, MAX_FAILURE_CHARACTERS),
    case("no text", b"\xff\xfe", None),
)
def test_what_the_file_holds_is_bounded(tmp_path: Path, content: bytes, length: int | None) -> None:
    (tmp_path / ERROR_FILE).write_bytes(content)
    found = first_error(tmp_path)
    text = failure_text(ValueError("the last one"), found)
    assert text == ("vLLM: ValueError: the last one" if length is None else f"vLLM: {'a' * length}")
