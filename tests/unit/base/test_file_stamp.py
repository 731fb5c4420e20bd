import os
from pathlib import Path

import pytest

from hostelry.base.files import stamp_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "images.toml"
    made.write_text("a")
    os.utime(made, ns=(1, 1))
    return made


def test_an_unchanged_file_has_the_same_stamp(path: Path) -> None:
    assert stamp_of(path) == stamp_of(path) is not None


def test_a_file_that_was_written_at_another_instant_is_another(path: Path) -> None:
    before = stamp_of(path)
    os.utime(path, ns=(2, 2))
    assert stamp_of(path) != before


def test_a_file_of_another_size_is_another(path: Path) -> None:
    before = stamp_of(path)
    path.write_text("ab")
    os.utime(path, ns=(1, 1))
    assert stamp_of(path) != before


def test_a_file_that_was_moved_into_its_place_is_another(path: Path) -> None:
    before = stamp_of(path)
    other = path.with_name("other")
    other.write_text("b")
    os.utime(other, ns=(1, 1))
    other.replace(path)
    assert stamp_of(path) != before


def test_no_file_has_no_stamp(path: Path) -> None:
    path.unlink()
    assert stamp_of(path) is None


def test_a_file_that_cannot_be_read_has_the_reason(path: Path) -> None:
    assert "Not a directory" in str(stamp_of(path / "below"))
