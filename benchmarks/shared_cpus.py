"""Claim: copies share the CPUs of a machine well, whatever their components reserve.

Tokens per second through the gateway, with boto3, of SmolLM2-135M-Instruct on a declared
ml.g5.12xlarge: one copy and four, each with one accelerator, with 12 CPUs reserved for each and
with none, on a quiet machine and next to a process that spins, with one stream to each copy and
with 16 requests over all. The sides take turns within each round, and medians are compared.

``python -m benchmarks.shared_cpus [--setting short|full] [--before CHECKOUT] [--smoke]``

`--before` names the root of another checkout of this repository, with its environment in `.venv`:
it takes the same turns, and ratios to it are printed.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform

from benchmarks.aims import Finding, finding_rows, ratio
from benchmarks.live_component import IMAGE, put_model, wait_until_settled
from benchmarks.models import model_folder
from benchmarks.record import print_table, write_result
from hostelry.base.clock import monotonic_s

SEED = 20261122
ENDPOINT, VARIANT, INSTANCE_TYPE = "chat", "AllTraffic", "ml.g5.12xlarge"
ROLE = "arn:aws:iam::111122223333:role/HostelryExecutionRole"
NOW, BEFORE = "now", "before"
RESERVED_CPUS, MANY = 12, 16
PROMPT = "The history of the lighthouse begins"
POOL_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The number of rounds, of copies, of requests that a stream sends, and the tokens of each."""

    rounds: int
    copies: int
    requests: int
    tokens: int


SETTINGS = {
    "smoke": Setting(rounds=1, copies=2, requests=1, tokens=4),
    "short": Setting(rounds=3, copies=4, requests=2, tokens=40),
    "full": Setting(rounds=9, copies=4, requests=3, tokens=64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measured case. `streams` requests are under way at any time."""

    reserves: bool
    copies: int
    busy: bool
    streams: int

    @property
    def row(self) -> dict[str, Any]:
        """The case as a row of a table."""
        return {
            "CPUs reserved": "yes" if self.reserves else "no",
            "copies": self.copies,
            "machine": "busy" if self.busy else "quiet",
            "requests": self.streams,
        }


def cells(setting: Setting, reserves: bool) -> list[Cell]:
    """The cases of components that reserve CPUs, or of components that do not."""
    return [
        Cell(reserves=reserves, copies=copies, busy=busy, streams=streams)
        for busy, copies in itertools.product((False, True), (1, setting.copies))
        for streams in (copies, MANY)
    ]


@contextlib.contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """If `wanted`, run a process of another session that takes all the time of one CPU."""
    if not wanted:
        yield
        return
    command = [sys.executable, "-S", "-c", "while True: pass"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Side:
    """A running platform of one checkout, with an endpoint for components."""

    def __init__(self, platform: Platform, model: Path, copies: int) -> None:
        put_model(platform, model)
        self._names = [f"component-{number}" for number in range(copies)]
        self._control = platform.boto3("sagemaker")
        self._runtime = platform.boto3("sagemaker-runtime", max_pool_connections=MANY)
        self._control.create_endpoint_config(
            EndpointConfigName="config",
            ExecutionRoleArn=ROLE,
            ProductionVariants=[
                {
                    "VariantName": VARIANT,
                    "InstanceType": INSTANCE_TYPE,
                    "InitialInstanceCount": 1,
                }
            ],
        )
        self._control.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName="config")
        wait_until_settled(
            lambda: self._control.describe_endpoint(EndpointName=ENDPOINT)["EndpointStatus"]
        )

    @contextlib.contextmanager
    def components(self, reserves: bool) -> Iterator[None]:
        """Create every component and wait until it is in service. Delete all afterwards."""
        requirements: dict[str, Any] = {
            "NumberOfAcceleratorDevicesRequired": 1,
            "MinMemoryRequiredInMb": 1024,
        }
        if reserves:
            requirements["NumberOfCpuCoresRequired"] = RESERVED_CPUS
        for name in self._names:
            self._control.create_inference_component(
                InferenceComponentName=name,
                EndpointName=ENDPOINT,
                VariantName=VARIANT,
                Specification={
                    "Container": {
                        "Image": IMAGE.format(region=self._control.meta.region_name),
                        "Environment": {
                            "OPTION_MODEL_ID": "s3://models/llm/",
                            "OPTION_POOL_BYTES": str(POOL_BYTES),
                        },
                    },
                    "ComputeResourceRequirements": requirements,
                },
                RuntimeConfig={"CopyCount": 1},
            )
        for name in self._names:
            wait_until_settled(lambda name=name: self._status(name))
        yield
        for name in self._names:
            self._control.delete_inference_component(InferenceComponentName=name)
        while self._control.list_inference_components()["InferenceComponents"]:
            time.sleep(0.1)

    def tokens_per_s(self, cell: Cell, setting: Setting) -> float:
        """Tokens a second of all streams together, from the first request to the last answer."""
        each = setting.requests if cell.streams == cell.copies else 1
        names = [self._names[number % cell.copies] for number in range(cell.streams)]

        def stream(name: str) -> int:
            return sum(self._generate(name, setting.tokens) for _ in range(each))

        with busy_process(cell.busy), ThreadPoolExecutor(cell.streams) as streams:
            started_s = monotonic_s()
            num_tokens = sum(streams.map(stream, names))
            return num_tokens / (monotonic_s() - started_s)

    def _generate(self, name: str, tokens: int) -> int:
        parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "details": True}
        answer = self._runtime.invoke_endpoint(
            EndpointName=ENDPOINT,
            InferenceComponentName=name,
            ContentType="application/json",
            Body=json.dumps({"inputs": PROMPT, "parameters": parameters}),
        )
        details = json.loads(answer["Body"].read())["details"]
        return int(details["generated_tokens"])

    def _status(self, name: str) -> str:
        found = self._control.describe_inference_component(InferenceComponentName=name)
        return str(found["InferenceComponentStatus"])


Samples = dict[tuple[Cell, str], list[float]]


def measure_sides(sides: dict[str, Side], setting: Setting) -> Samples:
    """Tokens per second of each turn, by the case and the side."""
    samples: Samples = {}
    for reserves in (False, True):
        with contextlib.ExitStack() as stack:
            for side in sides.values():
                stack.enter_context(side.components(reserves))
            for side in sides.values():  # first answers take longer
                for cell in cells(setting, reserves)[-2:]:
                    side.tokens_per_s(cell, SETTINGS["smoke"])
            for number, cell in itertools.product(range(setting.rounds), cells(setting, reserves)):
                turns = list(sides.items())
                for name, side in turns if number % 2 else reversed(turns):
                    found = side.tokens_per_s(cell, setting)
                    samples.setdefault((cell, name), []).append(found)
    return samples


def compare_sides(samples: Samples, setting: Setting) -> tuple[list[dict[str, Any]], list[Finding]]:
    """The table, and the findings with their aims."""
    median = {key: statistics.median(values) for key, values in samples.items()}
    rows = []
    for cell in (*cells(setting, False), *cells(setting, True)):
        now, before = median[cell, NOW], median.get((cell, BEFORE))
        row = {**cell.row, "tokens/s": now}
        if before is not None:
            row |= {"before": before, "now/before": now / before}
        rows.append(row)
    return rows, [
        *(_without_reservation(median, streams) for streams in (1, MANY)),
        *(
            _over_before(median, copies, busy)
            for copies, busy in ((1, True), (setting.copies, False))
        ),
    ]


def _without_reservation(median: dict[tuple[Cell, str], float], streams: int) -> Finding:
    free, reserved = (
        median[Cell(reserves=reserves, copies=1, busy=False, streams=streams), NOW]
        for reserves in (False, True)
    )
    what = f"one copy, {streams} requests: without a reservation / with one"
    return Finding(what=what, value=ratio(free, reserved), at_least=0.9)


def _over_before(median: dict[tuple[Cell, str], float], copies: int, busy: bool) -> Finding:
    cell = Cell(reserves=True, copies=copies, busy=busy, streams=copies)
    return Finding(
        what=f"{copies} copies, reserved, {cell.row['machine']}, a stream each: now / before",
        value=ratio(median[cell, NOW], median.get((cell, BEFORE))),
        at_least=1.0,
        why="no --before",
    )


def python_of(checkout: Path) -> str:
    """The interpreter of a checkout's environment. Raises SystemExit if it does not exist."""
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"--before: {python} is missing; run `make install` in {checkout}")
    return str(python)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_cpus")
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--before", type=Path, help="the root of an older checkout")
    parser.add_argument("--model", type=Path, help="a model folder; default the demo model")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, a few tokens")
    asked = parser.parse_args(arguments)
    name = "smoke" if asked.smoke else asked.setting
    pythons = {NOW: sys.executable}
    if asked.before is not None:
        pythons[BEFORE] = python_of(asked.before)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        scratch = Path(folder)
        model = model_folder(asked.model, scratch, tiny=asked.smoke)
        sides = {
            side: Side(
                stack.enter_context(Platform(scratch / side, python=python)),
                model,
                SETTINGS[name].copies,
            )
            for side, python in pythons.items()
        }
        samples = measure_sides(sides, SETTINGS[name])
    rows, findings = compare_sides(samples, SETTINGS[name])
    print_table("Tokens/s through the gateway, medians", rows)
    print_table("Found", finding_rows(findings))
    write_result(
        "shared_cpus",
        name,
        SEED,
        {
            "rows": rows,
            "samples": [
                {**cell.row, "side": it, "tokens/s": v} for (cell, it), v in samples.items()
            ],
            "findings": finding_rows(findings),
        },
    )


if __name__ == "__main__":
    main()
