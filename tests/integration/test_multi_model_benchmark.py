"""The benchmark of many models runs to its end on a real platform; peers are not installed here."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.integration.test_predictive_platform import runtimes

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(200)]
__all__ = ["runtimes"]
ROOT = Path(__file__).resolve().parents[2]


def test_models_are_called_measured_and_counted(runtimes: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "benchmarks.multi_model", "--setting", "smoke",
        "--runtimes", str(runtimes), "--without", "ray", "--without", "triton",
    ]  # fmt: skip
    paths = os.pathsep.join([str(ROOT), *sys.path])
    subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, check=True, timeout=180
    )
    result = msgspec.json.decode((tmp_path / "bench-results/multi_model.json").read_bytes())
    measured = result["measured"]
    (ours,) = measured["Calls, one after the other"]
    assert 0 < ours["warm, ms"] < ours["first, ms"]
    memory = {row["what"]: row for row in measured["Memory"]}
    assert memory["hostelry"]["given back, %"] > 90
    assert memory["platform, full"]["MB a model"] < memory["a process each"]["MB a model"]
    for row in measured["Hits in percent"]:
        assert 0 < row["live"] <= row["upper bound"] + 1e-9
