"""The GPU benchmark runs to its end with a tiny model, on the available device."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_steps_and_loads_are_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_multi_lora", "--tiny"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode((tmp_path / "bench-results/gpu_multi_lora.json").read_bytes())
    decode, loads = result["measured"]["decode"], result["measured"]["loads"]
    assert {(row["batch"], row["adapters"]) for row in decode} == {
        (batch, adapters) for batch in (1, 3) for adapters in (0, 1, 4)
    }
    assert all(row["step_ms"] > 0 for row in decode)
    assert len(loads) == 4
