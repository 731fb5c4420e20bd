"""Triton's ensembles of the steps that `benchmarks.graphs` measures: a scatter of 8, and chains.

Each step is a model of the Python backend that answers its input; the clients call tritonserver's
own HTTP on loopback, with nothing between. ``scatter`` is 8 steps at once of which each takes
``sleep_ms``, and one that stacks their answers, beside one such step; ``chain`` is 1 to 5 steps one
after the other. Rounds alternate; each figure is a median.

    with running_ensembles() as triton:
        triton.p50_ms("chain-5", duration_s=2.0, connections=1)    # also "step", "slow", "scatter"

Needs `hostelry runtimes install triton`.

``python -m benchmarks.triton_ensemble [--setting tiny|short|full]``
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import msgspec

from benchmarks.gateway_load import JSON, message, run_load
from benchmarks.graphs import BRANCHES, CHAINS, SETTINGS, SLEEP_MS
from benchmarks.load import Load
from benchmarks.record import print_table, write_result
from benchmarks.stack import stopped_after
from hostelry.base.ports import free_port
from hostelry.containers.triton.program import find_program

SEED = 0
PROGRAM = Path(__file__).parent / "peers" / "programs" / "triton_echo.py"
VALUES = [1.5, 2.5, 3.5, 4.5]
READY_TIMEOUT_S = 60.0
IO = '{kind} [{{ name: "{name}" data_type: TYPE_FP32 dims: [ {dims} ] }}]\n'
Steps = Sequence[tuple[str, Mapping[str, str], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonEnsembles:
    """A running tritonserver with the steps and ensembles, and the port of its HTTP."""

    port: int
    pid: int

    def p50_ms(self, name: str, duration_s: float, connections: int = 1) -> float:
        """The median latency of requests for a model or an ensemble. Raises RuntimeError."""
        x = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": VALUES}
        body = msgspec.json.encode({"inputs": [x]})
        given = {"Host": f"127.0.0.1:{self.port}", "Content-Type": JSON}
        load = Load(
            port=self.port,
            requests=[message(f"/v2/models/{name}/infer", given, body)],
            num_connections=connections,
            warm_up_s=0.3,
            duration_s=duration_s,
        )
        measured = run_load(load)
        if measured.errors:
            raise RuntimeError(f"{name}: {measured.errors} requests failed")
        return measured.p50_ms


@contextlib.contextmanager
def running_ensembles(sleep_ms: int = SLEEP_MS) -> Iterator[TritonEnsembles]:
    """Tritonserver with the models "step", "slow", "scatter" and "chain-1" to "chain-5"."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = find_program(os.environ, folder)
        write_models(folder / "models", sleep_ms)
        port = free_port()
        command = [
            str(program.path), f"--model-repository={folder / 'models'}",
            f"--backend-directory={program.backends}", "--http-address=127.0.0.1",
            f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=dict(program.variables), stdout=log, stderr=subprocess.STDOUT
            )
        with stopped_after(process):
            await_ready(process, port, folder / "log")
            yield TritonEnsembles(port=port, pid=process.pid)


def await_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Return once every model is loaded. Raises RuntimeError with the log's end."""
    give_up_at_s = time.perf_counter() + READY_TIMEOUT_S
    while process.poll() is None and time.perf_counter() < give_up_at_s:
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/v2/health/ready"):
            return
        time.sleep(0.05)
    raise RuntimeError(f"tritonserver is not ready: {log.read_text(errors='replace')[-2000:]}")


def write_models(folder: Path, sleep_ms: int) -> None:
    """The repository: steps of the Python backend, and ensembles of them."""
    write_step(folder / "step", ["x"], 0, 1)
    write_step(folder / "slow", ["x"], sleep_ms, BRANCHES)
    answers = [f"b{number}" for number in range(BRANCHES)]
    write_step(folder / "stack", answers, 0, 1)
    scatter: list[tuple[str, Mapping[str, str], str]] = [("slow", {"x": "x"}, it) for it in answers]
    write_ensemble(folder / "scatter", [*scatter, ("stack", {it: it for it in answers}, "y")])
    for length in CHAINS:
        values = ["x", *(f"h{number}" for number in range(length - 1)), "y"]
        chain = [("step", {"x": values[it]}, values[it + 1]) for it in range(length)]
        write_ensemble(folder / f"chain-{length}", chain)


def write_step(folder: Path, inputs: Sequence[str], sleep_ms: int, instances: int) -> None:
    """A model of the Python backend with the given inputs."""
    (folder / "1").mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "1" / "model.py")
    (folder / "1" / "ms").write_text(str(sleep_ms))
    (folder / "config.pbtxt").write_text(
        'backend: "python"\n'
        + "".join(IO.format(kind="input", name=it, dims="-1, 4") for it in inputs)
        + IO.format(kind="output", name="y", dims="-1, 4")
        + f"instance_group [{{ kind: KIND_CPU count: {instances} }}]\n"
    )


def write_ensemble(folder: Path, steps: Steps) -> None:
    """An ensemble of x to y; a step is its model, its inputs by their names, and its answer."""
    (folder / "1").mkdir(parents=True)
    parts = []
    for model, inputs, answer in steps:
        maps = "".join(f'input_map {{ key: "{to}" value: "{of}" }} ' for to, of in inputs.items())
        maps += f'output_map {{ key: "y" value: "{answer}" }}'
        parts.append(f'step {{ model_name: "{model}" model_version: -1 {maps} }}\n')
    (folder / "config.pbtxt").write_text(
        'platform: "ensemble"\n'
        + IO.format(kind="input", name="x", dims="-1, 4")
        + IO.format(kind="output", name="y", dims="-1, 4")
        + f"ensemble_scheduling {{ {''.join(parts)} }}\n"
    )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    setting = SETTINGS[parser.parse_args().setting]
    names = ["step", "slow", "scatter", *(f"chain-{length}" for length in CHAINS)]
    rows = []
    with running_ensembles() as triton:
        for connections in setting.connections:
            found: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(setting.rounds):
                for name in names:
                    found[name].append(triton.p50_ms(name, setting.duration_s, connections))
            longest = f"chain-{CHAINS[-1]}"
            pairs = {
                "scatter above its slowest branch": ("scatter", "slow", 1),
                "further step": (longest, "chain-1", CHAINS[-1] - 1),
            }
            figures = found | {
                figure: [(a - b) / by for a, b in zip(found[one], found[other], strict=True)]
                for figure, (one, other, by) in pairs.items()
            }
            rows += [
                {
                    "connections": connections,
                    "figure": figure,
                    "ms": statistics.median(values),
                    "least": min(values),
                    "most": max(values),
                }
                for figure, values in figures.items()
            ]
    print_table("Triton's ensembles", rows)
    write_result("triton_ensemble", parser.parse_args().setting, SEED, {"rows": rows})


if __name__ == "__main__":
    main()
