"""The smoke run of the study of verdicts ends, and decides obvious cases within seconds."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.rollout_verdict import TRUTHS, main


@pytest.mark.thorough
def test_each_truth_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/rollout_verdict.json").read_bytes())
    rows = {row["truth"]: row for row in result["measured"]["rows"]}
    updates = {row["truth"]: row for row in result["measured"]["updates"] if row["by"] == "verdict"}
    assert rows.keys() == {it.name for it in TRUTHS}
    assert sum(row["wrong"] for row in rows.values()) == 0
    assert rows["every request fails"]["seconds, most"] < 5
    assert rows["3 times slower"]["seconds, most"] < 10
    assert {it.name for it in TRUTHS if it.is_worse} == {
        name for name, row in updates.items() if row["taken back"] == 1
    }
    assert updates["the same"]["over after s"] < 300
