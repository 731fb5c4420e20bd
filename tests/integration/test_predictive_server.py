"""The framework model server with a real scikit-learn model, user code, bad input and faults."""

import io
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.cases import case, cases
from tests.integration.lmi_rig import eventually
from tests.integration.predictive_rig import PredictiveServer, launched, serving, train

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
CSV, JSON, NPY = "text/csv", "application/json", "application/x-npy"
# Custom attributes, which its functions see, choose the behaviour of the model.
CODE = """
import json, os, sys, time, joblib

def model_fn(model_dir):
    return joblib.load(os.path.join(model_dir, "model.joblib"))

def predict_fn(data, model, context):
    order = context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes") or ""
    if order == "abort": os.abort()
    if order == "exit": os._exit(0)
    if order == "leave": sys.exit(3)
    if order == "hang": time.sleep(1000)
    if order == "wait": time.sleep(0.5)
    if order == "grow": bytearray(1 << 60)
    if order == "flood": print("x" * 1000 * 1000, flush=True)
    if order == "header": context.set_response_header(0, "X-Own", "a\\r\\nSet-Cookie: b")
    if order == "teapot": context.set_response_status(418, "teapot")
    if order == "rows": return [[len(data), os.getpid()]] * len(data)
    return model.predict(data)

def execution_parameters_fn():
    return {"MaxConcurrentTransforms": 2, "BatchStrategy": "MULTI_RECORD"}
"""


class Trained:
    """A model folder, rows, and scikit-learn's own predictions for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows, self.predicted = train(folder / "model.joblib")

    def with_code(self, folder: Path, code: str, name: str = "inference.py") -> Path:
        """Another folder of the same model, with code."""
        (folder / "code").mkdir(parents=True)
        (folder / "model.joblib").write_bytes((self.folder / "model.joblib").read_bytes())
        (folder / "code" / name).write_text(code)
        return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictiveServer]:
    """The model without code in its archive."""
    log = tmp_path_factory.mktemp("logs") / "plain"
    with serving(trained.folder, log, SAGEMAKER_MAX_PAYLOAD_IN_MB="1") as server:
        yield server


@pytest.fixture(scope="module")
def coded(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PredictiveServer]:
    """The model with `CODE`, two workers, a time limit of 2 s."""
    folder = trained.with_code(tmp_path_factory.mktemp("coded") / "model", CODE)
    variables = {
        "SAGEMAKER_PROGRAM": "inference.py",
        "SAGEMAKER_SUBMIT_DIRECTORY": "file:///opt/ml/model/code",
        "SAGEMAKER_MODEL_SERVER_WORKERS": "2",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT": "2",
    }
    with serving(folder, folder.parent / "log", **variables) as server:
        yield server


def invoke(
    server: PredictiveServer, body: bytes, kind: str = JSON, order: str = "", **headers: str
) -> httpx.Response:
    sent = {"Content-Type": kind, "X-Amzn-SageMaker-Custom-Attributes": order, **headers}
    with server.client() as client:
        return client.post("/invocations", content=body, headers=sent)


def as_npy(values: Any) -> bytes:
    written = io.BytesIO()
    np.save(written, np.array(values), allow_pickle=True)
    return written.getvalue()


def as_csv(rows: list[list[float]]) -> bytes:
    return "\n".join(",".join(map(str, row)) for row in rows).encode()


def as_libsvm(rows: list[list[float]]) -> bytes:
    lines = (" ".join(f"{index}:{it}" for index, it in enumerate(row)) for row in rows)
    return "\n".join(f"0 {line}" for line in lines).encode()


FORMS = {
    "csv": (CSV, as_csv),
    "csv with parameters": ("text/csv; charset=utf-8; header=absent", as_csv),
    "json in capitals": ("Application/JSON", lambda rows: json.dumps(rows).encode()),
    "json after a byte order mark": (JSON, lambda rows: json.dumps(rows).encode("utf-8-sig")),
    "json": (JSON, lambda rows: json.dumps(rows).encode()),
    "json lines": (
        "application/jsonlines", lambda rows: "\n".join(map(json.dumps, rows)).encode()
    ),
    "npy": (NPY, as_npy),
    "libsvm": ("text/libsvm", as_libsvm),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_is_the_frameworks_own(
    plain: PredictiveServer, trained: Trained, form: str
) -> None:
    kind, written = FORMS[form]
    answer = invoke(plain, written(trained.rows), kind)
    assert answer.status_code == 200, answer.text
    assert answer.json() == pytest.approx(trained.predicted, rel=1e-6)
    assert answer.headers["content-type"] == JSON


@cases(
    "accept, kind, read",
    case("csv", CSV, CSV, lambda it: [float(line) for line in it.decode().split()]),
    case("npy", NPY, NPY, lambda it: np.load(io.BytesIO(it)).tolist()),
    case("json lines", "application/jsonlines", "application/jsonlines",
        lambda it: list(map(json.loads, it.split()))),
    case("with a parameter", "Application/JSON; charset=utf-8", JSON, json.loads),
    case("any, as browsers ask", "text/plain, */*", JSON, json.loads),
)  # fmt: skip
def test_the_client_chooses_the_form_of_the_answer(
    plain: PredictiveServer, trained: Trained, accept: str, kind: str, read: Any
) -> None:
    answer = invoke(plain, json.dumps(trained.rows).encode(), Accept=accept)
    assert read(answer.content) == pytest.approx(trained.predicted)
    assert answer.headers["content-type"] == kind


def test_python_objects_in_a_request_are_not_read(plain: PredictiveServer, tmp_path: Path) -> None:
    made = tmp_path / "made by the request"

    class Harm:
        def __reduce__(self) -> tuple[Any, tuple[str, str]]:
            return open, (str(made), "w")

    answer = invoke(plain, as_npy([Harm()]), NPY)
    assert answer.status_code == 500
    assert "allow_pickle" in answer.text
    assert not made.exists()


@cases(
    "body, kind, status, message",
    case("a content type that is not known", b"[[1, 2]]", "application/foo", 415,
        "Content type application/foo is not"),
    case("half an array", b"[[1, 2", JSON, 500, "JSONDecodeError"),
    case("another shape", b"[[1, 2, 3]]", JSON, 500, "expecting 2 features"),
    case("bytes that are no text", b"\xff\xfe", CSV, 400, "not text in utf-8"),
    case("an encoding that is no charset", b"1,2", "text/csv; charset=punycode", 415,
        "it must be of utf-8"),
    case("nothing", b"", JSON, 500, "JSONDecodeError"),
    case("csv of text", b"1,2\n3,x", CSV, 500, "line 2: field 2 is 'x'"),
    case("ragged csv", b"1,2\n3", CSV, 500, "line 2 has 1, line 1 has 2"),
    case("csv without a number is not read as -1", b"1,2\n,4", CSV, 500, "NaN"),
    case("too much", b"1" * (1 << 20) + b"1", JSON, 413, "MAX_PAYLOAD_IN_MB"),
)  # fmt: skip
def test_bad_requests_are_answered_with_their_cause(
    plain: PredictiveServer, body: bytes, kind: str, status: int, message: str
) -> None:
    answer = invoke(plain, body, kind)
    assert (answer.status_code, message in answer.text) == (status, True), answer.text
    text = re.sub(r"https:\S+", "", answer.text.replace("application/foo", ""))
    assert "/" not in text, "no path of the machine"


def test_a_request_without_the_copys_key_is_refused(plain: PredictiveServer) -> None:
    answer = httpx.post(f"{plain.url}/invocations", content=b"[[1, 2]]", trust_env=False)
    assert answer.status_code == 403


def test_functions_see_the_request_and_shape_the_answer(coded: PredictiveServer) -> None:
    answer = invoke(coded, b"[[1, 2]]", order="teapot")
    assert (answer.status_code, answer.json()) == (418, pytest.approx([9.0]))
    answer = invoke(coded, b"[[1, 2]]", order="header")
    assert answer.headers["x-own"] == "a  Set-Cookie: b"
    assert "set-cookie" not in answer.headers
    with coded.client() as client:
        parameters = client.get("/execution-parameters").json()
    assert parameters == {"MaxConcurrentTransforms": 2, "BatchStrategy": "MULTI_RECORD"}


@cases(
    "order, status, message",
    case("it aborts", "abort", 502, "by signal 6"),
    case("it exits", "exit", 502, "with status 0"),
    case("it hangs", "hang", 504, "took more than 2 s"),
    case("it raises an exit", "leave", 500, "SystemExit: 3 (inference.py line 11"),
    case("it wants more memory than there is", "grow", 500, "inference.py line 14"),
    case("it floods its output", "flood", 200, "[8.99"),
)
def test_a_fault_of_the_code_is_one_requests_and_the_next_is_served(
    coded: PredictiveServer, order: str, status: int, message: str
) -> None:
    answer = invoke(coded, b"[[1, 2]]", order=order)
    assert (answer.status_code, message in answer.text) == (status, True), answer.text
    assert invoke(coded, b"[[1, 2]]").json() == pytest.approx([9.0])
    eventually(lambda: len(coded.workers()) == 2, "two workers again")


def test_workers_serve_at_the_same_time(coded: PredictiveServer) -> None:
    eventually(lambda: len(coded.workers()) == 2, "two workers")
    with ThreadPoolExecutor(2) as pool:
        orders = [pool.submit(invoke, coded, b"[[1, 2]]", order="wait") for _ in range(2)]
        answers = [it.result().status_code for it in orders]
        assert orders[0].result().headers["x-hostelry-places"] == "2"
        with coded.client() as client:
            page = client.get("/metrics").text
    assert answers == [200, 200]
    assert "hostelry_model_workers 2.0" in page
    assert 'hostelry_model_requests_total{status="200"}' in page


def test_requests_are_predicted_together_where_that_is_asked_for(
    trained: Trained, tmp_path: Path
) -> None:
    folder = trained.with_code(tmp_path / "model", CODE)
    variables = {"SAGEMAKER_TS_BATCH_SIZE": "4", "SAGEMAKER_TS_MAX_BATCH_DELAY": "5000"}
    with (
        serving(
            folder, tmp_path / "log", SAGEMAKER_MODEL_SERVER_WORKERS="1", **variables
        ) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        asked = [pool.submit(invoke, server, b"[[1, 2]]", order="rows") for _ in range(4)]
        found = [it.result().json() for it in asked]
        assert [it[0][0] for it in found] == [4, 4, 4, 4], "one prediction of four rows"
        bodies = (b"[[1, 2]]", b"[[1, 2], [3, 4]]", b"[[1, 2, 3]]", b"nonsense")
        mixed = [pool.submit(invoke, server, body) for body in bodies]
        answers = [it.result() for it in mixed]
    assert [it.status_code for it in answers] == [200, 200, 500, 500]
    assert answers[1].json() == pytest.approx([9.0, 19.0])


# What AWS's samples import, though some of it trains, and how they answer.
SAMPLE = """
import joblib, json, os
import sagemaker_containers
from sagemaker_containers.beta.framework import (
    content_types, encoders, entry_point, env, errors, modules, server, transformer, worker)
from sagemaker_training import environment

def model_fn(model_dir):
    assert env.ServingEnv().module_name == "inference"
    return joblib.load(os.path.join(model_dir, "model.joblib"))

def input_fn(body, content_type):
    if body == "train":
        sagemaker_containers.training_env()
    return encoders.decode(body, content_type)

def output_fn(prediction, accept):
    if accept == content_types.JSON:
        rows = [{"features": it} for it in prediction.tolist()]
        return worker.Response(json.dumps({"instances": rows}), accept, mimetype=accept)
    if accept == "text/plain":
        return worker.Response("no", status=409, headers={"X-Own": "a"}, mimetype=accept)
    return worker.Response(encoders.encode(prediction, accept), mimetype=accept)
"""


@pytest.fixture(scope="module")
def sample(
    trained: Trained, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PredictiveServer]:
    folder = trained.with_code(tmp_path_factory.mktemp("sample") / "model", SAMPLE)
    with serving(folder, folder.parent / "log", SAGEMAKER_PROGRAM="inference.py") as server:
        yield server


@cases(
    "body, accept, expected",
    case("csv by their encoders", b"1,2\n1,2", CSV,
        (200, "text/csv; charset=utf-8", "[89]\\.[0-9]+\n" * 2)),
    case("an object", b"1,2\n1,2", JSON, (200, JSON, '{"instances": .*')),
    case("a status and a header", b"1,2\n1,2", "text/plain",
        (409, "text/plain; charset=utf-8", "no")),
    case("an unknown type", b"1,2\n1,2", "image/png",
        (406, "text/plain; charset=utf-8", "UnsupportedFormatError: Content type image/png.*")),
    case("what trains says so when it is called", b"train", CSV, (500, "text/plain; charset=utf-8",
                 "RuntimeError: sagemaker_containers.training_env is for training.*line 14.*")),
)  # fmt: skip
def test_scripts_that_import_the_modules_of_awss_images_are_served(
    sample: PredictiveServer, body: bytes, accept: str, expected: tuple[int, str, str]
) -> None:
    answer = invoke(sample, body, CSV, Accept=accept)
    assert (answer.status_code, answer.headers["content-type"]) == expected[:2], answer.text
    assert re.fullmatch(expected[2], answer.text, re.DOTALL), answer.text
    assert answer.headers.get("x-own") == ("a" if answer.status_code == 409 else None)


TRANSFORM = """
def model_fn(model_dir): return 2
def transform_fn(model, data, content_type, accept): return str(len(data) * model), "text/plain"
"""


def test_a_transform_function_does_it_all(trained: Trained, tmp_path: Path) -> None:
    folder = trained.with_code(tmp_path / "model", TRANSFORM, "entry.py")
    with serving(folder, tmp_path / "log", SAGEMAKER_PROGRAM="entry.py") as server:
        answer = invoke(server, b"abc", "application/octet-stream")
        assert (answer.text, answer.headers["content-type"]) == ("6", "text/plain")
        with server.client() as client:
            assert client.get("/execution-parameters").status_code == 404


@cases(
    "code, variables, message",
    case("no Python", "def model_fn(: pass", {}, "SyntaxError"),
    case("an import of what is not there", "import nothing_of_that_name", {},
        "No module named 'nothing_of_that_name'"),
    case("it raises", "def model_fn(d): raise ValueError('no weights')", {},
        "ValueError: no weights (inference.py line 1 in model_fn)"),
    case("both ways at once", TRANSFORM + "def predict_fn(d, m): pass", {},
        "Cannot use transform_fn"),
    case("it exits", "def model_fn(d): import os; os._exit(7)", {}, "with status 7"),
    case("a program in a folder", "x = 1", {"SAGEMAKER_PROGRAM": "code/inference.py"},
        "in no folder"),
    case("a program that is not there", "x = 1", {"SAGEMAKER_PROGRAM": "other.py"},
        "which is not in the model's code"),
)  # fmt: skip
def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_reason(
    trained: Trained, tmp_path: Path, code: str, variables: dict[str, str], message: str
) -> None:
    folder = trained.with_code(tmp_path / "model", code)
    with launched(folder, tmp_path / "log", **variables) as server:
        reason = server.ended()
    assert server.process.returncode == 1
    assert message in reason
    assert str(tmp_path) not in reason


VERSION = """
import six
def model_fn(model_dir):
    return six.__version__
def predict_fn(data, model):
    return [model]
"""


def test_packages_that_the_code_names_come_before_the_runtimes(
    trained: Trained, tmp_path: Path
) -> None:
    folder = trained.with_code(tmp_path / "model", VERSION)
    (folder / "code" / "requirements.txt").write_text("# ours\nsix==1.15.0\n")
    with serving(folder, tmp_path / "log", TMPDIR=str(tmp_path)) as server:
        with server.client() as client:
            answer = client.post("/invocations", json=[[1.0, 2.0]])
        assert answer.json() == ["1.15.0"]
        assert list(tmp_path.glob("hostelry-packages-*"))
    assert not list(tmp_path.glob("hostelry-packages-*")), "they go with the server"


@cases(
    "text, variables, message",
    case("the operator refuses", "six\n", {"HOSTELRY_CUSTOM_CODE_REQUIREMENTS": "refuse"},
        "HOSTELRY_CUSTOM_CODE_REQUIREMENTS=refuse"),
    case("no such package", "no-such-package-at-all==9\n", {},
        "requirements.txt cannot be installed"),
    case("half a line", "six ==\n", {}, "requirements.txt cannot be installed"),
    case("too large", "#" * 100_000, {}, "more than 65536 bytes"),
)  # fmt: skip
def test_packages_that_cannot_be_installed_end_the_server_with_the_reason(
    trained: Trained, tmp_path: Path, text: str, variables: dict[str, str], message: str
) -> None:
    folder = trained.with_code(tmp_path / "model", VERSION)
    (folder / "code" / "requirements.txt").write_text(text)
    with launched(folder, tmp_path / "log", TMPDIR=str(tmp_path), **variables) as server:
        assert message in server.ended()
    assert server.process.returncode == 2
    assert not list(tmp_path.glob("hostelry-packages-*"))


@cases(
    "flags, message",
    case("one", ("--framework", "cobol", "--python", "python3"), "must be one of"),
    case("a runtime that is not there", ("--framework", "sklearn", "--runtime", "sklearn-0.1"),
        "hostelry runtimes install sklearn:0.1"),
    case("no interpreter", ("--framework", "sklearn", "--python", "/nowhere/python"),
        "/nowhere/python cannot be started"),
    case("a program that is no interpreter", ("--framework", "sklearn", "--python", "/bin/false"),
        "with status 1"),
)  # fmt: skip
def test_a_server_that_cannot_start_ends_with_what_would_help(
    trained: Trained, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    with launched(trained.folder, tmp_path / "log", *flags) as server:
        assert message in server.ended()
    assert server.process.returncode in (1, 2)


def test_the_end_of_any_part_leaves_no_process(trained: Trained, tmp_path: Path) -> None:
    with serving(trained.folder, tmp_path / "one") as server:
        pids = [*server.workers(), server.zygote()]
        server.process.send_signal(signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, pids)), "zygote and workers end with the server")
    with serving(trained.folder, tmp_path / "two") as server:
        pids = server.workers()
        os.kill(server.zygote(), signal.SIGKILL)
        assert "the process that workers are forked from is gone" in server.ended()
        eventually(lambda: not any(map(is_alive, pids)), "workers end with the zygote")


def is_alive(pid: int) -> bool:
    """Whether a process runs. An ended process that was not reaped does not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_stop_lets_requests_end(coded: PredictiveServer) -> None:
    before = coded.num_taken()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(invoke, coded, b"[[1, 2]]", order="wait")
        eventually(lambda: coded.num_taken() > before, "a worker has the request")
        coded.process.terminate()
        assert asked.result().json() == pytest.approx([9.0])
    coded.process.wait(20)
    assert coded.process.returncode == 0
