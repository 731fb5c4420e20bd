"""Triton's server as a real process, and archives with models for its Python backend."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.lmi_rig import END_S, Server, eventually
from tests.integration.platform import clean_environment

from hostelry.base.files import REGIONS, region_prefix
from hostelry.base.guards import COPY_KEY_HEADER, COPY_KEY_VARIABLE
from hostelry.base.json import decode
from hostelry.base.ports import free_port
from hostelry.base.runtimes import VARIABLE as RUNTIMES
from hostelry.containers.triton.triton_process import LEFT, PLACE, LeftEnvironments

KEY = "a-key-of-this-copy"
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "x", data_type: TYPE_FP32, dims: [ 1 ] }]
output [{ name: "y", data_type: TYPE_FP32, dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU }]
dynamic_batching { max_queue_delay_microseconds: 100000 }
"""
# For negative numbers: -1 raises, -2 exits, -3 hangs, -4 answers the number of requests.
MODEL = """
import os, time, numpy
import triton_python_backend_utils as triton
class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, "factor")) as file:
            self.factor = float(file.read())
    def execute(self, requests):
        return [self.answer(it, len(requests)) for it in requests]
    def answer(self, request, count):
        x = triton.get_input_tensor_by_name(request, "x").as_numpy()
        first = float(x.flat[0])
        if first == -1:
            return triton.InferenceResponse(error=triton.TritonError("of this request alone"))
        if first == -2:
            os._exit(3)
        if first == -3:
            time.sleep(600)
        if first == -5:
            raise ValueError("of all requests")
        y = numpy.full_like(x, count) if first == -4 else x * self.factor
        return triton.InferenceResponse([triton.Tensor("y", y.astype(numpy.float32))])
    def finalize(self):
        print("finalized", flush=True)
"""
OWN_PACKAGES = """
import os, sys
sys.path.insert(0, os.environ["OWN_PACKAGES"])
import own
"""
STEP = """
{{ model_name: "{name}" model_version: -1
   input_map {{ key: "x" value: "{before}" }} output_map {{ key: "y" value: "{after}" }} }}
"""
ENSEMBLE = f"""
platform: "ensemble"
max_batch_size: 8
input [{{ name: "x", data_type: TYPE_FP32, dims: [ 1 ] }}]
output [{{ name: "y", data_type: TYPE_FP32, dims: [ 1 ] }}]
ensemble_scheduling {{ step [
{STEP.format(name="first", before="x", after="between")},
{STEP.format(name="second", before="between", after="y")} ] }}
"""
Files = Mapping[str, str | bytes | None]


def times(factor: str, name: str = "times") -> Files:
    """A model that multiplies, in a folder of its name."""
    return {
        f"{name}/config.pbtxt": CONFIG, f"{name}/1/model.py": MODEL, f"{name}/1/factor": factor,
    }  # fmt: skip


def ensemble(first: str, second: str) -> Files:
    """Two models that multiply, and an ensemble of both. None is an empty folder."""
    own = {"both/config.pbtxt": ENSEMBLE, "both/1": None}
    return {**times(first, "first"), **times(second, "second"), **own}


def with_environment() -> Files:
    """A model that multiplies by a number (3) from a module in its packed environment."""
    activate = 'export OWN_PACKAGES="$(dirname "$(dirname "${BASH_SOURCE[0]}")")/packages"\n'
    packages = packed({"bin/activate": activate, "packages/own.py": "FACTOR = 3.0"})
    named = (
        'parameters: { key: "EXECUTION_ENV_PATH" '
        'value: { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
    )
    return {
        "times/config.pbtxt": f"{CONFIG}\n{named}",
        "times/1/model.py": OWN_PACKAGES + MODEL.replace("float(file.read())", "own.FACTOR"),
        "times/1/factor": "",
        "times/env.tar.gz": packages,
    }


def packed(files: Files) -> bytes:
    """A model.tar.gz."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if text is None else tarfile.REGTYPE
            member.mode = 0o755 if text is None else 0o644
            data = text if isinstance(text, bytes) else (text or "").encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def unpacked(folder: Path, files: Files) -> Path:
    """The same model as a folder."""
    with tarfile.open(fileobj=io.BytesIO(packed(files))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def tensor(*numbers: float) -> bytes:
    """A JSON request with rows of one number."""
    x = {"name": "x", "shape": [len(numbers), 1], "datatype": "FP32", "data": numbers}
    return json.dumps({"inputs": [x]}).encode()


def numbers(body: bytes) -> Any:
    """The numbers in a JSON answer."""
    return json.loads(body)["outputs"][0]["data"]


class TritonServer(Server):
    """A running server. `process` is the front."""

    def ask(self, *given: float, path: str = "/invocations") -> tuple[int, str]:
        """Status and text of the answer to a JSON request."""
        with self.client() as client:
            kind = {"Content-Type": "application/json"}
            answer = client.post(path, content=tensor(*given), headers=kind)
        return answer.status_code, answer.text

    def environments(self) -> list[Path]:
        """The folders that the Python backend has made in /tmp."""
        (file,) = (self.log.parent / "copy").glob(f"triton/*/server/{LEFT}")
        found = decode(file.read_bytes(), LeftEnvironments)
        return [PLACE / it for it in {*found.made, *found.used}]

    def regions(self) -> list[str]:
        """The names of the server's shared memory."""
        prefix = region_prefix(self.log.parent / "copy")
        return [it.name for it in REGIONS.iterdir() if it.name.startswith(prefix)]


@contextmanager
def launched(
    model_dir: Path, root: Path, runtimes: Path, **variables: str
) -> Iterator[TritonServer]:
    """A server in root/copy that may still be loading. It is ended after the block."""
    port, copy = free_port(), root / "copy"
    copy.mkdir(exist_ok=True)
    environment = {
        **clean_environment(),
        "PYTHONPATH": os.pathsep.join(sys.path),
        RUNTIMES: str(runtimes),
        COPY_KEY_VARIABLE: KEY,
        "HOSTELRY_COPY_FOLDER": str(copy),
        "HOSTELRY_MODEL_DIR": str(model_dir),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        **variables,
    }
    command = [sys.executable, "-m", "hostelry.containers.triton"]
    log = root / "log"
    with log.open("ab") as sink:
        process = subprocess.Popen(command, env=environment, cwd=copy, stdout=sink, stderr=sink)
    server = TritonServer(process, f"http://127.0.0.1:{port}", log, {COPY_KEY_HEADER: KEY})
    try:
        yield server
    finally:
        process.terminate()
        process.wait(END_S)


@contextmanager
def serving(
    model_dir: Path, root: Path, runtimes: Path, **variables: str
) -> Iterator[TritonServer]:
    """A server that has loaded its model."""
    with launched(model_dir, root, runtimes, **variables) as server:
        eventually(
            lambda: server.status() == 200 or server.process.poll() is not None, "serves", 90
        )
        assert server.process.poll() is None, server.log.read_text(errors="replace")
        yield server
