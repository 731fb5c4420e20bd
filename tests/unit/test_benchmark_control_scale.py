"""The scale benchmark's smoke run: every phase ends, with figures for the requested sizes."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.control_scale import main


def test_every_change_reaches_the_routes_and_control_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/control_scale.json").read_bytes())
    assert result.keys() >= {"commit", "hardware", "seed", "command", "setting", "measured"}
    found = result["measured"]["found"]
    assert found["changes"] == 10
    assert {"create_published_p50_ms", "restart_to_routes_s", "snapshot_mib"} <= found.keys()
    assert found["snapshot_mib"] > 0
