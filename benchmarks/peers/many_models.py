"""Ray Serve's model multiplexing and Triton's explicit model control, with models from S3."""

import contextlib
import io
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers import process_tree
from benchmarks.peers.contestant import log_tail
from benchmarks.peers.installed import install_into, site_packages
from benchmarks.peers.model_shelf import BODY, JSON, ROW, Answered, Connections, timed_answer

PROGRAMS = Path(__file__).parent / "programs"
READY_TIMEOUT_S = 120.0
# The same versions as in the runtime, whose models they load.
SKLEARN = (
    "scikit-learn==1.2.2",
    "numpy<2",
    "joblib==1.4.2",
)
PACKAGES = {
    "ray": ("ray[serve]==2.60.0", "boto3", *SKLEARN),
    "triton": ("nvidia-pytriton==0.7.0", *SKLEARN),
}
TRITON_CONFIG = """
backend: "python"
max_batch_size: 0
input [{ name: "ROWS" data_type: TYPE_FP64 dims: [-1, -1] }]
output [{ name: "PREDICTED" data_type: TYPE_FP64 dims: [-1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
TRITON_BODY = msgspec.json.encode(
    {
        "inputs": [
            {
                "name": "ROWS",
                "shape": [len(ROW), len(ROW[0])],
                "datatype": "FP64",
                "data": [value for row in ROW for value in row],
            }
        ]
    }
)


def environment_of(name: str, folder: Path) -> Path:
    """The peer's environment in `folder`, which is made if it does not exist."""
    return install_into(folder / name, PACKAGES[name])


class RayModels:
    """Ray Serve, which reports in its answer whether a model was loaded."""

    name = "ray"

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        self._connections = Connections(port)
        self.pid = process.pid

    def call(self, target: str) -> Answered:
        """Send one request."""
        headers = {"Content-Type": JSON, "serve_multiplexed_model_id": target}
        content, took_s = timed_answer(self._connections, "/", BODY, headers)
        found = msgspec.json.decode(content)
        return Answered(predicted=found["predicted"][0], took_s=took_s, hit=found["hit"])


@contextlib.contextmanager
def running_ray(
    environment: Path, port: int, most: int, bucket: str, variables: Mapping[str, str]
) -> Iterator[RayModels]:
    """Ray Serve with a replica of at most `most` models, whose `variables` lead to the bucket."""
    python = environment / "bin/python"
    command = [str(python), str(PROGRAMS / "ray_models.py"), str(port), str(most), bucket]
    given = {
        **os.environ,
        **variables,
        "PATH": f"{python.parent}:{os.environ.get('PATH', '')}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # by default its workers have a low priority
    }
    with started("ray", command, given) as (process, log):
        wait_until(lambda: b"ready" in log.read_bytes(), process, log)
        yield RayModels(port, process)


@dataclass(slots=True)
class Shelved:
    """A model of Triton, in the state that this script knows."""

    loading: threading.Lock = field(default_factory=threading.Lock)
    loaded: bool = False
    users: int = 0


class TritonModels:
    """Triton, and the rule that explicit control leaves to its user: LRU of at most `most`."""

    name = "triton"

    def __init__(
        self,
        port: int,
        process: "subprocess.Popen[bytes]",
        repository: Path,
        most: int,
        fetch: Callable[[str], bytes],
    ) -> None:
        self._connections = Connections(port)
        self._repository, self._fetch, self.most = repository, fetch, most
        self._models: OrderedDict[str, Shelved] = OrderedDict()
        self._lock = threading.Lock()
        self.pid = process.pid

    def call(self, target: str) -> Answered:
        """Send one request. Download and load the model first if it is not loaded."""
        name = target.partition(".")[0]
        began_s = time.perf_counter()
        with self._lock:
            model = self._models.setdefault(name, Shelved())
            self._models.move_to_end(name)
            model.users += 1
        try:
            with model.loading:
                hit = model.loaded
                if not hit:
                    self._make_room()
                    self._load(name, target)
                    model.loaded = True
            path = f"/v2/models/{name}/infer"
            content = self._connections.send("POST", path, TRITON_BODY, {"Content-Type": JSON})
        finally:
            with self._lock:
                model.users -= 1
        (output,) = msgspec.json.decode(content)["outputs"]
        took_s = time.perf_counter() - began_s
        return Answered(predicted=output["data"][0], took_s=took_s, hit=hit)

    def unload_all(self) -> None:
        """Unload all loaded models, and wait until their processes have ended."""
        for name, model in self._models.items():
            if model.loaded:
                model.loaded = False
                self._unload(name)
        give_up_at_s = time.perf_counter() + READY_TIMEOUT_S
        while len(process_tree.members(self.pid)) > 1 and time.perf_counter() < give_up_at_s:
            time.sleep(0.05)

    def _make_room(self) -> None:
        """Unload the least recently used models, unless requests need them."""
        with self._lock:
            loaded = [it for it in self._models.items() if it[1].loaded]
            idle = [it for it in loaded if not it[1].users and it[1].loading.acquire(False)]
            excess = max(0, len(loaded) - self.most + 1)
            for _, model in idle[excess:]:
                model.loading.release()
            for _, model in idle[:excess]:
                model.loaded = False
        for name, model in idle[:excess]:
            self._unload(name)
            model.loading.release()

    def _unload(self, name: str) -> None:
        self._connections.send("POST", f"/v2/repository/models/{name}/unload", b"", {})

    def _load(self, name: str, target: str) -> None:
        folder = self._repository / name
        if not folder.exists():
            (folder / "1").mkdir(parents=True)
            (folder / "config.pbtxt").write_text(f'name: "{name}"\n{TRITON_CONFIG}')
            shutil.copy(PROGRAMS / "triton_model.py", folder / "1" / "model.py")
            with tarfile.open(fileobj=io.BytesIO(self._fetch(target))) as members:
                members.extract("model.joblib", folder / "1", filter="data")
        self._connections.send("POST", f"/v2/repository/models/{name}/load", b"", {})


@contextlib.contextmanager
def running_triton(
    environment: Path, port: int, most: int, fetch: Callable[[str], bytes], scratch: Path
) -> Iterator[TritonModels]:
    """Triton in explicit mode with an empty repository in `scratch`. `fetch` returns archives."""
    packages = site_packages(environment)
    server = packages / "pytriton" / "tritonserver"
    backends, repository = scratch / "backends", scratch / "repository"
    shutil.copytree(server / "backends", backends)
    repository.mkdir()
    stub = server / "python_backend_stubs" / f"3.{sys.version_info.minor}"
    shutil.copy(stub / "triton_python_backend_stub", backends / "python")
    # The stub embeds the first Python of PATH, whose library the loader must find.
    libraries = [packages / "nvidia_pytriton.libs", Path(sysconfig.get_config_var("LIBDIR"))]
    given = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
    }
    command = [str(server / "bin/tritonserver"), f"--model-repository={repository}",
        f"--backend-directory={backends}", "--model-control-mode=explicit",
        f"--http-port={port}", "--http-address=127.0.0.1", "--allow-grpc=false",
        "--allow-metrics=false",
    ]  # fmt: skip
    with started("triton", command, given) as (process, log):
        wait_until(lambda: is_listening(port), process, log)
        yield TritonModels(port, process, repository, most, fetch)


@contextlib.contextmanager
def started(
    name: str, command: Sequence[str], variables: Mapping[str, str]
) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A process and its log. The process and all its descendants are ended afterwards."""
    log = Path(os.environ.get("TMPDIR", "/tmp")) / f"{name}-{os.getpid()}.log"
    with log.open("wb") as sink:
        process: subprocess.Popen[Any] = subprocess.Popen(
            command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            process_group=0,
        )
    try:
        yield process, log
    finally:
        process_tree.stop(process)
        log.unlink(missing_ok=True)


def is_listening(port: int) -> bool:
    """Whether a connection to the port succeeds."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def wait_until(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return once `ready()` is true. Raises RuntimeError with the log's end if it stays false."""
    give_up_at_s = time.perf_counter() + READY_TIMEOUT_S
    while not ready():
        if process.poll() is not None or time.perf_counter() > give_up_at_s:
            raise RuntimeError(f"it is not ready:\n{log_tail(log)}")
        time.sleep(0.05)
