"""The first error of vLLM's processes."""

import json
import logging
import logging.config
from pathlib import Path

import pytest

from hostelry.containers.lmi.vllm.first_error import (
    ERROR_FILE,
    LOGGING_FILE,
    MAX_FAILURE_CHARACTERS,
    failure_text,
    first_error,
    write_logging,
)


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


@pytest.mark.parametrize(
    ("content", "length"),
    [
        pytest.param(b"a" * 100_000, MAX_FAILURE_CHARACTERS, id="a long one"),
        pytest.param(b"\xff\xfe", None, id="no text"),
    ],
)
def test_what_the_file_holds_is_bounded(tmp_path: Path, content: bytes, length: int | None) -> None:
    (tmp_path / ERROR_FILE).write_bytes(content)
    found = first_error(tmp_path)
    text = failure_text(ValueError("the last one"), found)
    assert text == ("vLLM: ValueError: the last one" if length is None else f"vLLM: {'a' * length}")
