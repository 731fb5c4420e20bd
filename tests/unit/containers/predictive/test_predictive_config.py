"""The settings of a framework model server, and the memory of its models."""

import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.containers.predictive.config import PredictiveConfig, find_interpreter, resolve
from hostelry.containers.predictive.model_table import (
    explain_overflow,
    find_most_grown,
    measure_memory,
)

MIB = 1 << 20


def config(model_dir: Path, **variables: str) -> PredictiveConfig:
    return resolve(variables, "sklearn", Path("/runtime/bin/python"), model_dir, 4)


@cases(
    "variables, expected",
    case("a worker for each CPU", {}, {"num_workers": 4, "threads_per_worker": 1, "batch_size": 1}),
    case("of the reservation", {"HOSTELRY_CPUS": "2.5"},
        {"num_workers": 2, "threads_per_worker": 1}),
    case("no more than the machine has", {"HOSTELRY_CPUS": "192"},
        {"num_workers": 4, "threads_per_worker": 1}),
    case("more if they are asked for",
        {"HOSTELRY_CPUS": "192", "SAGEMAKER_MODEL_SERVER_WORKERS": "8"},
        {"num_workers": 8, "threads_per_worker": 1}),
    case("one at least", {"HOSTELRY_CPUS": "0.25"}, {"num_workers": 1, "threads_per_worker": 1}),
    case("as many as are asked for", {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"},
        {"num_workers": 2, "threads_per_worker": 2}),
    case("the time limit", {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "90"}, {"predict_timeout_s": 90}),
    case("its newer name comes first",
        {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "90", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "5"},
        {"predict_timeout_s": 5}),
    case("the largest body", {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "7"}, {"max_request_bytes": 7 * MIB}),
    case("batches", {"SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "20"},
        {"batch_size": 8, "batch_delay_s": 0.02}),
    case("requests that may wait", {"SAGEMAKER_MODEL_JOB_QUEUE_SIZE": "7"}, {"max_queued": 7}),
)  # fmt: skip
def test_settings(tmp_path: Path, variables: dict[str, str], expected: dict[str, object]) -> None:
    found = config(tmp_path, **variables)
    assert {name: getattr(found, name) for name in expected} == expected


@cases(
    "given, folder",
    case("code/ of the model by default", None, "code"),
    case("AWS's path of it", "/opt/ml/model/code", "code"),
    case("another folder of the model", "file:///opt/ml/model/src", "src"),
    case("the model's own folder", "/opt/ml/model", ""),
)
def test_the_codes_folder(tmp_path: Path, given: str | None, folder: str) -> None:
    variables = {"SAGEMAKER_SUBMIT_DIRECTORY": given} if given else {}
    assert config(tmp_path, **variables).code_dir == tmp_path / folder


@cases(
    "variables, message",
    case("zero", {"SAGEMAKER_MODEL_SERVER_WORKERS": "0"}, "a number from 1 to 1024"),
    case("a word", {"SAGEMAKER_MODEL_SERVER_WORKERS": "many"}, "'many'"),
    case("a negative number", {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "-1"}, "'-1'"),
    case("a huge number", {"SAGEMAKER_TS_BATCH_SIZE": "9" * 400}, "from 1 to 1024"),
    case("a huge body", {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "4096"}, "from 1 to 2047"),
    case("code that was not downloaded", {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://b/code.tar.gz"},
        "no folder here"),
    case("code above the model", {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/../../other"},
        r"leave out the"),
)  # fmt: skip
def test_wrong_settings(tmp_path: Path, variables: dict[str, str], message: str) -> None:
    with pytest.raises(TerminalError, match=message):
        config(tmp_path, **variables)


def test_a_model_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match="HOSTELRY_MODEL_DIR"):
        config(tmp_path / "none")


def test_an_interpreter_is_named_or_installed(tmp_path: Path) -> None:
    assert find_interpreter({}, None, "/usr/bin/python3") == Path("/usr/bin/python3")
    with pytest.raises(TerminalError, match="--runtime"):
        find_interpreter({}, None, None)
    with pytest.raises(TerminalError, match=r"hostelry runtimes install sklearn:1\.2"):
        find_interpreter({"HOSTELRY_RUNTIMES_DIR": str(tmp_path)}, "sklearn-1.2", None)


@cases(
    "limit_bytes, used_bytes, model_bytes, refused",
    case("without a limit there is room", None, 1 << 60, 0, False),
    case("before a load, while memory is left", 100, 99, 0, False),
    case("not in a full memory", 100, 100, 0, True),
    case("beside the others", 100, 60, 39, False),
    case("not where it fills the memory", 100, 60, 40, True),
)
def test_room_for_a_model(
    limit_bytes: int | None, used_bytes: int, model_bytes: int, refused: bool
) -> None:
    reason = explain_overflow(limit_bytes, used_bytes, model_bytes)
    assert (reason is not None) == refused
    assert reason is None or "unload a model first" in reason


@cases(
    "limit_bytes, used_bytes, sizes, expected",
    case("there is no limit", None, 900, [("a", 1, 800)], None),
    case("the limit is kept", 100, 99, [("a", 1, 80)], None),
    case("the one that has grown most", 100, 100, [("a", 60, 70), ("b", 1, 20)], "b"),
    case("none has grown", 100, 100, [("a", 60, 50)], None),
    case("there is none", 100, 100, [], None),
)
def test_the_model_that_ends_where_memory_is_exceeded(
    limit_bytes: int | None,
    used_bytes: int,
    sizes: list[tuple[str, int, int]],
    expected: str | None,
) -> None:
    assert find_most_grown(limit_bytes, used_bytes, sizes) == expected


def test_memory_of_processes() -> None:
    one = measure_memory([os.getpid()])
    assert one > 1 << 20
    assert measure_memory([2**22 + 1]) == 0, "one that is not there counts nothing"
