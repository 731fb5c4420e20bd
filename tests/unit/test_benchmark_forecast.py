"""The simulated part of the forecast benchmark: every request is answered, on all instances."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.forecast import main


def test_the_simulation_answers_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--setting", "smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/forecast.json").read_bytes())
    (row,) = result["measured"]["simulated"]
    assert (row["requests"], row["instances"], row["copies"]) == (2_000, 2, 8)
    assert 0 < row["p50 s"] < row["p99 s"]
