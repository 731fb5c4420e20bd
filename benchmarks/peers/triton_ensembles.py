"""Triton's ensembles of an echo model of its Python backend, called over tritonserver's own HTTP.

Clients connect to tritonserver directly, and its steps pass tensors in its own memory. Needs
`hostelry runtimes install triton`.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

import msgspec

from benchmarks.gateway_load import JSON
from benchmarks.peers import process_tree
from benchmarks.peers.composed import Composed, Compositions
from benchmarks.peers.contestant import PeerMissingError
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.containers.triton.program import find_program
from hostelry.loadtest.requests import message

PROGRAM = Path(__file__).parent / "programs" / "triton_echo.py"
VALUES = [1.0, 2.0, 3.0, 4.0]
READY_TIMEOUT_S = 60.0
IO = '{kind} [{{ name: "{name}" data_type: TYPE_FP32 dims: [ -1, 4 ] }}]\n'
Steps = Sequence[tuple[str, Mapping[str, str], str]]  # a model, its inputs by name, its output


@contextlib.contextmanager
def running_triton(asked: Compositions) -> Iterator[Composed]:
    """A tritonserver with the models and ensembles. Raises PeerMissingError or RuntimeError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            program = find_program(os.environ, folder)
        except TerminalError as error:
            raise PeerMissingError(str(error)) from error
        write_models(folder / "models", asked)
        port, log = free_port(), folder / "log"
        command = [
            str(program.path), f"--model-repository={folder / 'models'}",
            f"--backend-directory={program.backends}", "--http-address=127.0.0.1",
            f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false",
        ]  # fmt: skip
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command,
                env=dict(program.variables),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                process_group=0,
            )
        try:
            await_ready(process, port, log)
            yield Composed(port=port, requests=triton_requests(asked), pids=(process.pid,))
        finally:
            process_tree.stop(process)


def triton_requests(asked: Compositions) -> dict[str, bytes]:
    """Requests by name, as in `Compositions`, with the same numbers as one tensor."""
    x = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": VALUES}
    body = msgspec.json.encode({"inputs": [x]})
    models = {
        "call": "step",
        "slow call": "slow",
        "scatter": "scatter",
        **{f"chain {length}": f"chain-{length}" for length in asked.chains},
    }
    headers = {"Host": "127.0.0.1", "Content-Type": JSON}
    return {
        name: message(f"/v2/models/{model}/infer", headers, body) for name, model in models.items()
    }


def await_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Return once every model is loaded. Raises RuntimeError with the log's end."""
    give_up_at_s = time.perf_counter() + READY_TIMEOUT_S
    while process.poll() is None and time.perf_counter() < give_up_at_s:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/v2/health/ready"):
            return
        time.sleep(0.05)
    raise RuntimeError(f"tritonserver is not ready: {log.read_text(errors='replace')[-2000:]}")


def write_models(folder: Path, asked: Compositions) -> None:
    """Write the repository: steps of the Python backend, and ensembles of them."""
    write_step(folder / "step", ["x"], 0, 1)
    write_step(folder / "slow", ["x"], asked.sleep_ms, asked.branches)
    answers = [f"b{number}" for number in range(asked.branches)]
    write_step(folder / "stack", answers, 0, 1)
    scatter: list[tuple[str, Mapping[str, str], str]] = [("slow", {"x": "x"}, it) for it in answers]
    write_ensemble(folder / "scatter", [*scatter, ("stack", {it: it for it in answers}, "y")])
    for length in asked.chains:
        values = ["x", *(f"h{number}" for number in range(length - 1)), "y"]
        chain = [("step", {"x": values[it]}, values[it + 1]) for it in range(length)]
        write_ensemble(folder / f"chain-{length}", chain)


def write_step(folder: Path, inputs: Sequence[str], sleep_ms: int, instances: int) -> None:
    """Write a model of the Python backend with the given inputs."""
    (folder / "1").mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "1" / "model.py")
    (folder / "1" / "ms").write_text(str(sleep_ms))
    (folder / "config.pbtxt").write_text(
        'backend: "python"\n'
        + "".join(IO.format(kind="input", name=it) for it in inputs)
        + IO.format(kind="output", name="y")
        + f"instance_group [{{ kind: KIND_CPU count: {instances} }}]\n"
    )


def write_ensemble(folder: Path, steps: Steps) -> None:
    """Write an ensemble that maps x to y."""
    (folder / "1").mkdir(parents=True)
    parts = []
    for model, inputs, answer in steps:
        maps = "".join(f'input_map {{ key: "{to}" value: "{of}" }} ' for to, of in inputs.items())
        maps += f'output_map {{ key: "y" value: "{answer}" }}'
        parts.append(f'step {{ model_name: "{model}" model_version: -1 {maps} }}\n')
    (folder / "config.pbtxt").write_text(
        'platform: "ensemble"\n'
        + IO.format(kind="input", name="x")
        + IO.format(kind="output", name="y")
        + f"ensemble_scheduling {{ {''.join(parts)} }}\n"
    )
