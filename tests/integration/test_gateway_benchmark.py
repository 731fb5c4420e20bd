"""The benchmark of the gateway runs, and names the source of its numbers."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_the_benchmark_measures_without_errors_and_records_its_circumstances(
    tmp_path: Path,
) -> None:
    """The cache of peers is empty, and the result must not contain measurements of peers."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.gateway_overhead",
            "--setting",
            "tiny",
            "--workers",
            "2",
            "--components",
            "50",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode((tmp_path / "bench-results/gateway_overhead.json").read_bytes())
    assert {"commit", "hardware", "seed", "command", "setting"} <= result.keys()
    rows = result["measured"]["invocations"] + result["measured"]["streams"]
    assert len(rows) == 2
    for row in rows:
        assert row["errors"] == 0
        assert row["gateway/s"] > 0
        assert row["direct/s"] > 0
    components = result["measured"]["components"]
    assert [row["components"] for row in components] == [1, 50, 50, 50, 50]
    assert all(row["errors"] == 0 and row["per s"] > 0 for row in components)
    contest = result["measured"]["contest"]
    assert [(row["server"], row["workers"]) for row in contest] == [
        ("hostelry", 1),
        ("hostelry", 2),
    ]
    assert all(row["errors"] == 0 and row["requests/s"] > 0 for row in contest)
    assert list(result["measured"]["missing"]) == ["ray-serve", "litserve", "bentoml"]
    verdicts = {it["verdict"] for it in result["measured"]["findings"]}
    assert verdicts == {"not measured: not installed"}
