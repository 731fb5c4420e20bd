"""The settings of a framework model server, and the memory of its models."""

import os
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, {"num_workers": 4, "threads_per_worker": 1, "batch_size": 1},
                     id="a worker for each CPU"),
        pytest.param({"HOSTELRY_CPUS": "2.5"}, {"num_workers": 2, "threads_per_worker": 1},
                     id="of the reservation"),
        pytest.param({"HOSTELRY_CPUS": "0.25"}, {"num_workers": 1, "threads_per_worker": 1},
                     id="one at least"),
        pytest.param({"SAGEMAKER_MODEL_SERVER_WORKERS": "2"},
                     {"num_workers": 2, "threads_per_worker": 2}, id="as many as are asked for"),
        pytest.param({"SAGEMAKER_MODEL_SERVER_TIMEOUT": "90"}, {"predict_timeout_s": 90},
                     id="the time limit"),
        pytest.param({"SAGEMAKER_MODEL_SERVER_TIMEOUT": "90",
                      "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "5"}, {"predict_timeout_s": 5},
                     id="its newer name comes first"),
        pytest.param({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "7"}, {"max_request_bytes": 7 * MIB},
                     id="the largest body"),
        pytest.param({"SAGEMAKER_TS_BATCH_SIZE": "8", "SAGEMAKER_TS_MAX_BATCH_DELAY": "20"},
                     {"batch_size": 8, "batch_delay_s": 0.02}, id="batches"),
        pytest.param({"SAGEMAKER_MODEL_JOB_QUEUE_SIZE": "7"}, {"max_queued": 7},
                     id="requests that may wait"),
    ],
)  # fmt: skip
def test_settings(tmp_path: Path, variables: dict[str, str], expected: dict[str, object]) -> None:
    found = config(tmp_path, **variables)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        pytest.param(None, "code", id="code/ of the model by default"),
        pytest.param("/opt/ml/model/code", "code", id="AWS's path of it"),
        pytest.param("file:///opt/ml/model/src", "src", id="another folder of the model"),
        pytest.param("/opt/ml/model", "", id="the model's own folder"),
    ],
)
def test_the_codes_folder(tmp_path: Path, given: str | None, folder: str) -> None:
    variables = {"SAGEMAKER_SUBMIT_DIRECTORY": given} if given else {}
    assert config(tmp_path, **variables).code_dir == tmp_path / folder


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        pytest.param({"SAGEMAKER_MODEL_SERVER_WORKERS": "0"}, "a number from 1 to 1024", id="zero"),
        pytest.param({"SAGEMAKER_MODEL_SERVER_WORKERS": "many"}, "'many'", id="a word"),
        pytest.param({"SAGEMAKER_MODEL_SERVER_TIMEOUT": "-1"}, "'-1'", id="a negative number"),
        pytest.param({"SAGEMAKER_TS_BATCH_SIZE": "9" * 400}, "from 1 to 1024", id="a huge number"),
        pytest.param({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "4096"}, "from 1 to 2047", id="a huge body"),
        pytest.param({"SAGEMAKER_SUBMIT_DIRECTORY": "s3://b/code.tar.gz"}, "no folder here",
                     id="code that was not downloaded"),
        pytest.param({"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/../../other"}, r"leave out the",
                     id="code above the model"),
    ],
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


@pytest.mark.parametrize(
    ("limit_bytes", "used_bytes", "model_bytes", "refused"),
    [
        pytest.param(None, 1 << 60, 0, False, id="without a limit there is room"),
        pytest.param(100, 99, 0, False, id="before a load, while memory is left"),
        pytest.param(100, 100, 0, True, id="not in a full memory"),
        pytest.param(100, 60, 39, False, id="beside the others"),
        pytest.param(100, 60, 40, True, id="not where it fills the memory"),
    ],
)
def test_room_for_a_model(
    limit_bytes: int | None, used_bytes: int, model_bytes: int, refused: bool
) -> None:
    reason = explain_overflow(limit_bytes, used_bytes, model_bytes)
    assert (reason is not None) == refused
    assert reason is None or "unload a model first" in reason


@pytest.mark.parametrize(
    ("limit_bytes", "used_bytes", "sizes", "expected"),
    [
        pytest.param(None, 900, [("a", 1, 800)], None, id="there is no limit"),
        pytest.param(100, 99, [("a", 1, 80)], None, id="the limit is kept"),
        pytest.param(
            100, 100, [("a", 60, 70), ("b", 1, 20)], "b", id="the one that has grown most"
        ),
        pytest.param(100, 100, [("a", 60, 50)], None, id="none has grown"),
        pytest.param(100, 100, [], None, id="there is none"),
    ],
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
