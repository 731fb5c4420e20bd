"""The settings of a framework model server by its variables."""

from pathlib import Path

import pytest

from hostelry.base.errors import TerminalError
from hostelry.containers.predictive.config import PredictiveConfig, find_interpreter, resolve

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
