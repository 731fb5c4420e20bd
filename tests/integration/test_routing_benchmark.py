"""The benchmark of routing runs, in simulated time and over real connections."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.routing_simulation import STRATEGIES

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
ROOT = Path(__file__).resolve().parents[2]


def test_the_benchmark_measures_every_strategy_and_records_its_circumstances(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.routing", "--setting", "smoke"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode((tmp_path / "bench-results/routing.json").read_bytes())
    assert {"commit", "hardware", "seed", "command", "setting"} <= result.keys()
    measured = result["measured"]
    for table in ("simulated", "throughput", "live"):
        assert [row["strategy"] for row in measured[table]] == list(STRATEGIES)
    for row in measured["simulated"] + measured["live"]:
        assert 0 < row["p50 ms"] <= row["p99 ms"]
        assert 0 < row["adapter hits"] < 1
    assert all(row["verdict"] in ("met", "not met", "no aim") for row in measured["findings"])
