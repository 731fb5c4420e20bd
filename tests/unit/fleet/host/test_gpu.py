"""Readings of nvidia-smi, also where it is missing or fails."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.domain.copy import GpuUse
from hostelry.fleet.host.usage import TOOL, gpu_uses, parse_gpu_uses, select_gpu_uses

FIRST = GpuUse(device="0", busy_percent=37.0, memory_percent=25.0)
TEXT = "0, GPU-a1, 37, 20480, 81920\n1, GPU-b2, 0, 0, 81920\n"


def test_a_device_is_known_by_its_number_and_its_uuid() -> None:
    found = parse_gpu_uses(TEXT)
    assert found["0"] == found["GPU-a1"] == FIRST
    assert select_gpu_uses(("GPU-a1",), found) == (FIRST,)
    assert select_gpu_uses(("7",), found) == ()


@pytest.mark.parametrize(
    "line",
    ["0, GPU-a1, [N/A], 20480, 81920", "0, GPU-a1, 37, 1, 0", "No devices were found", "", "0, x"],
)
def test_a_device_that_reports_nothing_is_left_out(line: str) -> None:
    assert parse_gpu_uses(line) == {}


@cases(
    "script, devices",
    case("a tool that tells", f"printf '{TEXT}'", {"0", "1", "GPU-a1", "GPU-b2"}),
    case("a driver in trouble", "exit 9", set()),
    case("no tool", None, set()),
)
def test_the_tool_is_asked_where_there_is_one(
    script: str | None, devices: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        tool = tmp_path / TOOL
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert set(gpu_uses()) == devices
