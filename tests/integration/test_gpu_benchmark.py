"""The GPU benchmarks run to their end with a tiny model, on the available device."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


def run_tiny(name: str, folder: Path) -> dict[str, Any]:
    """What a benchmark measured."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--tiny"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode((folder / f"bench-results/{name}.json").read_bytes())
    measured: dict[str, Any] = result["measured"]
    return measured


@pytest.mark.thorough
def test_steps_and_loads_are_measured(tmp_path: Path) -> None:
    measured = run_tiny("gpu_multi_lora", tmp_path)
    decode, loads = measured["decode"], measured["loads"]
    assert {(row["batch"], row["adapters"]) for row in decode} == {
        (batch, adapters) for batch in (1, 3) for adapters in (0, 1, 4)
    }
    assert all(row["step_ms"] > 0 for row in decode)
    assert len(loads) == 4


def test_our_server_and_its_engine_are_measured(tmp_path: Path) -> None:
    measured = run_tiny("gpu_contest", tmp_path)
    assert {(row["engine"], row["not measured"]) for row in measured["engines"]} == {
        ("ours, server", ""), ("ours, engine", ""),
    }  # fmt: skip
    speeds = {(row["engine"], row["case"]): row["tokens/s"] for row in measured["speeds"]}
    server = {case for engine, case in speeds if engine == "ours, server"}
    assert server == {
        "base", "1 adapters", "4 adapters", "base, sampled", "4 adapters, sampled",
        "one long prompt",
    }  # fmt: skip
    assert all(it > 0 for it in speeds.values())
    verdicts = {row["what"]: row["verdict"] for row in measured["findings"]}
    assert verdicts["server / engine: tokens/s"] in ("met", "not met")
    assert verdicts["ours / vLLM, base: tokens/s"] == (
        "not measured: no interpreter with it was named"
    )
