"""The detection study's smoke run ends, and its numbers fit its streams."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.detection_study import main, streams_of
from benchmarks.detectors import DETECTORS


def test_every_detector_is_measured_on_every_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--smoke"])
    result = msgspec.json.decode((tmp_path / "bench-results/detection_study.json").read_bytes())
    assert result.keys() >= {"commit", "hardware", "seed", "command", "setting", "measured"}
    rows = result["measured"]["rows"]
    assert len(rows) == len(streams_of(0)) * len(DETECTORS)
    by_name = {(row["stream"], row["detector"]): row for row in rows}
    for stream in streams_of(0)[:3]:
        ours = by_name[stream.name, "responsive"]
        assert ours["p50 s"] < by_name[stream.name, "AWS high resolution, 3 x 10 s, mean"]["p50 s"]
        assert by_name[stream.name, "AWS, 3 x 1 minute of invocations"]["p50 s"] > 120.0
