"""The replay of multi-model endpoints ends, and no policy exceeds the possible optimum."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.model_policies import NAMES
from benchmarks.model_trace import TRACES
from benchmarks.multi_model_trace import BOUND, main


def test_no_policy_passes_the_bound_and_ours_keeps_to_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--setting", "smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/multi_model_trace.json").read_bytes())
    assert result.keys() >= {"commit", "hardware", "seed", "command", "setting", "measured"}
    rows = result["measured"]["memory"]
    assert {(row["trace"], row["policy"]) for row in rows} == {
        (trace, policy) for trace in TRACES for policy in (*NAMES, BOUND)
    }
    bounds = {row["trace"]: row for row in rows if row["policy"] == BOUND}
    for row in rows:
        assert row["hit %"] <= bounds[row["trace"]]["hit %"] + 1e-9
        assert row["load ms/request"] >= bounds[row["trace"]]["load ms/request"] - 1e-9
    assert all(row["median us"] > 0 for row in result["measured"]["decisions"])
