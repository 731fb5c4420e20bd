"""A multi-model server: models loaded, used, unloaded and refused by the container's contract."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.cases import case, cases
from tests.integration.lmi_rig import eventually
from tests.integration.predictive_rig import (
    PredictiveServer,
    launched,
    runtime_python,
    train,
)

from hostelry.containers.predictive.model_table import measure_memory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
MIB = 1 << 20
LARGE_BYTES = 100 * MIB
BODY = b"[[1, 2]]"
LARGE = """
import time
import numpy
def model_fn(model_dir): return numpy.ones({bytes} // 8)
def predict_fn(data, model, context):
    time.sleep(float(context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes") or 0))
    return [float(model[0])] * len(data)
"""


class Models:
    """A multi-model server and folders of models."""

    def __init__(self, server: PredictiveServer, folder: Path) -> None:
        self.server = server
        self._folder = folder
        self.rows, self.predicted = train(folder / "model.joblib")

    def folder(self, name: str) -> Path:
        """A folder with the trained model."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        (folder / "model.joblib").write_bytes((self._folder / "model.joblib").read_bytes())
        return folder

    def coded(self, name: str, code: str) -> Path:
        """A folder with code."""
        folder = self._folder / name
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "inference.py").write_text(code)
        return folder

    def sent(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> httpx.Response:
        with self.server.client() as client:
            return client.request(method, path, content=content, headers=headers, params=query)

    def load(self, name: str, folder: Path) -> httpx.Response:
        order = json.dumps({"model_name": name, "url": str(folder)}).encode()
        return self.sent("POST", "/models", order)

    def invoke(self, name: str, order: str = "") -> httpx.Response:
        headers = {"Content-Type": "application/json", "X-Amzn-SageMaker-Custom-Attributes": order}
        return self.sent("POST", f"/models/{name}/invoke", content=BODY, headers=headers)

    def unload(self, name: str) -> httpx.Response:
        return self.sent("DELETE", f"/models/{name}")

    def processes(self) -> list[int]:
        """Front, zygote and workers."""
        return [self.server.process.pid, self.server.zygote(), *self.server.workers()]


def launch(tmp: Path, **variables: str) -> Iterator[Models]:
    flags = ("--framework", "sklearn", "--multi-model", "--python", str(runtime_python()))
    with launched(tmp, tmp / "log", *flags, **variables) as server:
        eventually(
            lambda: server.status() == 200 or server.process.poll() is not None, "it serves", 90.0
        )
        assert server.process.poll() is None, (tmp / "log").read_text(errors="replace")
        yield Models(server, tmp)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    yield from launch(tmp_path_factory.mktemp("models"))


def test_a_model_is_loaded_used_and_unloaded(models: Models) -> None:
    folder = models.folder("one")
    assert models.invoke("one").status_code == 404
    loaded = models.load("one", folder)
    assert loaded.status_code == 200, loaded.text
    assert models.invoke("one").json() == pytest.approx(models.predicted[:1])
    again = models.load("one", folder)
    assert (again.status_code, again.text) == (409, "model one is already loaded")
    shown = models.sent("GET", "/models/one").json()
    assert (shown["modelName"], shown["modelUrl"]) == ("one", str(folder))
    assert MIB < shown["memoryBytes"] < 200 * MIB
    assert models.unload("one").status_code == 200
    for answer in (models.invoke("one"), models.unload("one"), models.sent("GET", "/models/one")):
        assert (answer.status_code, answer.text) == (404, "model one is not loaded")


def test_models_are_listed_by_pages(models: Models) -> None:
    names = [f"page {number}" for number in range(5)]
    with ThreadPoolExecutor(5) as pool:
        for answer in pool.map(lambda name: models.load(name, models.folder("pages")), names):
            assert answer.status_code == 200, answer.text
    found, token = [], ""
    while token is not None:
        page = models.sent("GET", "/models", limit="2", next_page_token=token).json()
        found += [it["modelName"] for it in page["models"]]
        token = page.get("nextPageToken")
    assert found == names
    for name in names:
        assert models.unload(name).status_code == 200
    assert models.sent("GET", "/models").json() == {"models": []}


@cases(
    "body, status, message",
    case("no JSON", b"{", 400, "model_name"),
    case("no name", b'{"url": "/tmp"}', 400, "model_name"),
    case("a slash", b'{"model_name": "a/b", "url": "/tmp"}', 400, "no slash"),
    case("an empty name", b'{"model_name": "", "url": "/tmp"}', 400, "1 to 1024"),
    case("a folder that is not there", b'{"model_name": "a", "url": "/no/such"}', 404,
        "no folder here"),
    case("a relative folder", b'{"model_name": "a", "url": "relative"}', 404, "no folder here"),
    case("a huge body", b'{"model_name": "' + b"a" * (1 << 17), 413, "more than"),
)  # fmt: skip
def test_orders_that_are_refused(models: Models, body: bytes, status: int, message: str) -> None:
    answer = models.sent("POST", "/models", content=body)
    assert (answer.status_code, message in answer.text) == (status, True), answer.text


@cases(
    "code, message",
    case("it raises", "def model_fn(d): raise ValueError('no weights')", "ValueError: no weights"),
    case("it aborts", "def model_fn(d): import os; os.abort()", "by signal 6"),
)  # fmt: skip
def test_a_model_that_cannot_be_loaded_harms_no_other(
    models: Models, code: str, message: str, request: pytest.FixtureRequest
) -> None:
    models.load("good", models.folder("good"))
    answer = models.load("bad", models.coded(f"bad {request.node.name}", code))
    assert (answer.status_code, message in answer.text) == (400, True), answer.text
    assert models.invoke("bad").status_code == 404
    assert models.invoke("good").status_code == 200
    models.unload("good")


def test_packages_of_one_of_many_models_are_refused_with_what_to_do(models: Models) -> None:
    folder = models.coded("packages", "def model_fn(d): return 1")
    (folder / "code" / "requirements.txt").write_text("six\n")
    answer = models.load("packages", folder)
    assert answer.status_code == 400
    assert "SAGEMAKER_SUBMIT_DIRECTORY" in answer.text


def test_a_models_process_that_is_killed_is_replaced_alone(models: Models) -> None:
    for name in ("killed", "other"):
        models.load(name, models.folder(name))
    before = set(models.server.workers())
    os.kill(min(before), signal.SIGKILL)
    eventually(lambda: set(models.server.workers()) != before, "it ends")
    eventually(lambda: models.invoke("killed").status_code == 200, "it is replaced")
    assert models.invoke("other").status_code == 200
    for name in ("killed", "other"):
        models.unload(name)


def own_bytes(models: Models) -> int:
    """The processes' memory without files, whose pages other programs share and give up."""
    pages = [Path(f"/proc/{it}/smaps_rollup").read_text() for it in models.processes()]
    return sum(int(re.findall(r"Pss_Anon:\s+(\d+)", it)[0]) for it in pages) * 1024


def test_an_unload_gives_the_memory_back_and_lets_requests_end(models: Models) -> None:
    large = models.coded("large", LARGE.format(bytes=LARGE_BYTES))
    models.load("first", models.folder("first"))
    before = own_bytes(models)
    assert models.load("large", large).json()["memoryBytes"] > LARGE_BYTES
    loaded = own_bytes(models)
    with ThreadPoolExecutor(1) as pool:
        taken = models.server.num_taken()
        asked = pool.submit(models.invoke, "large", "1")
        eventually(lambda: models.server.num_taken() > taken, "it is on its way")
        assert models.unload("large").status_code == 200
        assert asked.result().json() == [1.0], "the request was let end"
    after = own_bytes(models)
    assert (loaded - after) / (loaded - before) > 0.98
    models.unload("first")


def test_many_models_share_the_frameworks_pages(models: Models) -> None:
    names = [f"model-{number}" for number in range(20)]
    for name in names:
        assert models.load(name, models.folder("shared")).status_code == 200
    together = measure_memory(models.processes()) / len(names)
    alone = subprocess.run(
        [
            str(runtime_python()),
            "-c",
            "import numpy, scipy, pandas, sklearn, sklearn.linear_model, sagemaker_inference\n"
            "print(open('/proc/self/smaps_rollup').read().split('Rss:')[1].split()[0])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert together < int(alone.stdout) * 1024 / 4
    for name in names:
        models.unload(name)


def test_a_model_beyond_the_copys_memory_is_refused_with_507(tmp_path: Path) -> None:
    with contextmanager(launch)(tmp_path, HOSTELRY_MEMORY_BYTES=str(400 * MIB)) as models:
        small = models.coded("small", LARGE.format(bytes=MIB))
        huge = models.coded("huge", LARGE.format(bytes=500 * MIB))
        assert models.load("small", small).status_code == 200
        answer = models.load("huge", huge)
        assert (answer.status_code, "unload a model first" in answer.text) == (507, True)
        assert models.invoke("huge").status_code == 404
        assert models.invoke("small").json() == [1.0]


HANGS = "import time\ndef model_fn(model_dir): time.sleep(600)"


def test_a_model_whose_load_hangs_is_ended_by_its_delete_and_holds_up_no_other(
    models: Models,
) -> None:
    assert models.load("beside", models.folder("beside")).status_code == 200
    before = set(models.server.workers())
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(models.load, "hangs", models.coded("hangs", HANGS))
        eventually(lambda: len(set(models.server.workers()) - before) == 1, "its process is there")
        assert models.load("next", models.folder("next")).status_code == 200
        assert models.invoke("beside").status_code == models.invoke("next").status_code == 200
        assert models.unload("hangs").status_code == 200
        assert hanging.result().status_code == 409
    assert models.unload("next").status_code == 200
    eventually(lambda: set(models.server.workers()) == before, "the process that hung has ended")
    models.unload("beside")


LEAK = """
import numpy
kept = []
def model_fn(model_dir): return 1
def predict_fn(data, model):
    kept.append(numpy.ones(50 * 2**20 // 8))
    return [1.0]
"""


def test_a_model_that_leaks_ends_before_its_neighbours(tmp_path: Path) -> None:
    with contextmanager(launch)(tmp_path, HOSTELRY_MEMORY_BYTES=str(400 * MIB)) as models:
        assert models.load("small", models.coded("small", LARGE.format(bytes=MIB))).is_success
        assert models.load("leak", models.coded("leak", LEAK)).is_success
        statuses: list[int] = []

        def is_unloaded() -> bool:
            statuses.append(models.invoke("leak").status_code)
            return statuses[-1] == 404

        eventually(is_unloaded, "it is ended", 30.0)
        assert set(statuses) <= {200, 404, 502}
        assert models.invoke("small").json() == [1.0]
        assert "model leak was ended: it grew from" in (tmp_path / "log").read_text()


ONCE = "import os\ndef model_fn(model_dir): os.mkdir(model_dir + '/once')"


def test_one_of_two_workers_that_cannot_load_leaves_no_other(tmp_path: Path) -> None:
    with contextmanager(launch)(tmp_path, SAGEMAKER_MODEL_SERVER_WORKERS="3") as models:
        answer = models.load("once", models.coded("once", ONCE))
        assert (answer.status_code, "FileExistsError" in answer.text) == (400, True)
        assert str(tmp_path) not in answer.text
        eventually(lambda: not models.server.workers(), "no worker is left")
