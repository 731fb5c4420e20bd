"""The framework model server as a real process over a real scikit-learn model."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.lmi_rig import END_S, Server, eventually
from tests.integration.platform import clean_environment
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.guards import COPY_KEY_HEADER, COPY_KEY_VARIABLE
from hostelry.base.ports import free_port

KEY = "a-key-of-this-copy"
TRAIN = """
import json, sys, joblib, numpy
from sklearn.linear_model import LinearRegression
rows = numpy.arange(20.0).reshape(10, 2)
model = LinearRegression().fit(rows, rows @ [2.0, 3.0] + 1.0)
joblib.dump(model, sys.argv[1])
asked = numpy.array([[1.0, 2.0], [30.0, 40.0]])
print(json.dumps({"rows": asked.tolist(), "predicted": model.predict(asked).tolist()}))
"""


def runtime_python() -> Path:
    """The interpreter of an environment with scikit-learn and AWS's toolkit."""
    packages = ("scikit-learn", "pandas", "joblib", "sagemaker-inference==1.10.1")
    return virtual_environment("sklearn", *packages) / "python"


def train(file: Path) -> tuple[list[list[float]], list[float]]:
    """Write a trained model to `file`. Returns rows with scikit-learn's own predictions."""
    done = subprocess.run(
        [str(runtime_python()), "-c", TRAIN, str(file)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return found["rows"], found["predicted"]


class PredictiveServer(Server):
    """A running server."""

    def zygote(self) -> int:
        """The process from which workers are forked. It is the server's only child."""
        return self.engine_pid()

    def workers(self) -> list[int]:
        """The workers' process ids."""
        zygote = self.zygote()
        found = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
        return [int(pid) for pid in found]

    def num_taken(self) -> float:
        """The number of batches that workers have taken so far."""
        with self.client() as client:
            page = client.get("/metrics").text
        lines = (it.split() for it in page.splitlines())
        return next(float(it[1]) for it in lines if it[0] == "hostelry_model_batch_size_count")

    def ended(self) -> str:
        """The last line of the log, once the server has ended."""
        self.process.wait(END_S)
        return self.log.read_text(errors="replace").strip().splitlines()[-1]


@contextmanager
def launched(
    model_dir: Path, log: Path, *flags: str, **variables: str
) -> Iterator[PredictiveServer]:
    """A server that may still be loading. After the block it has ended without a process left."""
    port = free_port()
    environment = {**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [
        sys.executable, "-m", "hostelry.containers.predictive", "--model-dir", str(model_dir),
        "--port", str(port), *(flags or ("--framework", "sklearn", "--python",
                                         str(runtime_python()))),
    ]  # fmt: skip
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, env={**environment, COPY_KEY_VARIABLE: KEY}, stdout=sink, stderr=sink
        )
    server = PredictiveServer(process, f"http://127.0.0.1:{port}", log, {COPY_KEY_HEADER: KEY})
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
            raise


@contextmanager
def serving(model_dir: Path, log: Path, **variables: str) -> Iterator[PredictiveServer]:
    """A server that has loaded its model."""
    with launched(model_dir, log, **variables) as server:
        eventually(
            lambda: server.status() == 200 or server.process.poll() is not None, "it serves", 90.0
        )
        assert server.process.poll() is None, log.read_text(errors="replace")
        yield server
