import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.fleet.agent.model_files import MIN_FILE_BYTES, read_ahead, read_model_ahead

BIG = b"w" * MIN_FILE_BYTES


def test_large_files_are_asked_for_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "cache" / "part").mkdir(parents=True)
    for name in ("a.safetensors", "part/b.safetensors"):
        (tmp_path / "cache" / name).write_bytes(BIG)
    (tmp_path / "cache" / "config.json").write_text("{}")
    (tmp_path / "model").symlink_to(tmp_path / "cache")
    assert read_ahead(tmp_path / "model", 10 * len(BIG)) == 2 * len(BIG)


def test_no_more_is_asked_for_than_the_budget(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(BIG)
    assert read_ahead(tmp_path, 2 * len(BIG)) == 2 * len(BIG)
    assert read_ahead(tmp_path, 0) == 0


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "z").write_bytes(BIG)
    assert read_ahead(tmp_path, 10 * len(BIG)) == len(BIG)
    assert read_ahead(tmp_path / "nothing", 10) == 0


@cases(
    "available, asked",
    case("half of the memory that is available", {b"MemAvailable": 2 * len(BIG)}, 1),
    case("an old kernel", {b"MemFree": 2 * len(BIG)}, 0),
    case("nothing", {}, 0),
)
def test_the_budget_is_a_share_of_what_is_available(
    available: dict[bytes, int], asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostelry.fleet.agent.model_files.sizes", lambda _: available)
    for name in "abc":
        (tmp_path / name).write_bytes(BIG)
    assert read_model_ahead(tmp_path) == asked * len(BIG)
