"""The packing benchmark's smoke run ends, and states the origin of its numbers."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.packing import MIXES, main


def test_fleets_together_are_no_larger_than_apart_and_no_smaller_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/packing.json").read_bytes())
    assert result.keys() >= {"commit", "hardware", "seed", "command", "setting", "measured"}
    fleets = result["measured"]["fleets"]
    assert [row["mix"] for row in fleets] == [it.name for it in MIXES]
    for row in fleets:
        assert row["lower bound"] <= row["together"] <= row["endpoint per model"]
    assert all(row["verdict"] in ("met", "not met") for row in result["measured"]["findings"])
