"""The choice of the engine, the environment of vLLM, and the errors of its start."""

import json
import logging
import logging.config
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.settings.config import Backend, LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.vllm.first_error import (
    ERROR_FILE,
    LOGGING_FILE,
    MAX_FAILURE_CHARACTERS,
    failure_text,
    first_error,
    write_logging,
)
from hostelry.containers.lmi.vllm.launch import backends_to_try, vllm_environment, why_not

OURS, VLLM = Backend.HOSTELRY, Backend.VLLM
MISSING = "vLLM is not installed in /runtimes: hostelry runtimes install vllm"


def config(**options: str) -> LmiConfig:
    env = {f"OPTION_{name.upper()}": it for name, it in options.items()}
    return resolve_config(
        {**env, "HOSTELRY_RUNTIMES_DIR": "/runtimes"}, "", ["config.json"], Path("/model"), 4
    )


@cases(
    "options, missing, tried",
    case("by default ours, then vLLM", {}, None, (OURS, VLLM)),
    case("without vLLM ours alone", {}, MISSING, (OURS,)),
    case("ours", {"backend": "hostelry"}, None, (OURS,)),
    case("vLLM", {"backend": "vllm"}, None, (VLLM,)),
    case("LMI's way to ask for vLLM", {"rolling_batch": "vllm"}, None, (VLLM,)),
    case("which is not there", {"rolling_batch": "vllm"}, MISSING, (OURS,)),
    case("backend is before", {"rolling_batch": "vllm", "backend": "hostelry"}, None, (OURS,)),
    case("another batch", {"rolling_batch": "lmi-dist"}, None, (OURS, VLLM)),
)
def test_choice(options: dict[str, str], missing: str | None, tried: tuple[Backend, ...]) -> None:
    assert backends_to_try(config(**options), missing) == tried


def test_vllm_that_is_not_there_is_refused_with_what_would_help() -> None:
    with pytest.raises(ConfigurationError, match="hostelry runtimes install vllm"):
        backends_to_try(config(backend="vllm"), MISSING)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one of auto, hostelry, vllm"):
        config(backend="sglang")


def test_what_is_not_installed_is_named_with_its_place(tmp_path: Path) -> None:
    reason = why_not(tmp_path, use_accelerators=True)
    assert reason == f"vLLM is not installed in {tmp_path}: hostelry runtimes install vllm"


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
