import os
from pathlib import Path

import pytest

from hostelry.base.files import get_stamp


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "images.toml"
    made.write_text("a")
    os.utime(made, ns=(1, 1))
    return made


def test_an_unchanged_file_has_the_same_stamp(path: Path) -> None:
    assert get_stamp(path) == get_stamp(path) is not None


def test_a_file_that_was_written_at_another_instant_is_another(path: Path) -> None:
    before = get_stamp(path)
    os.utime(path, ns=(2, 2))
    assert get_stamp(path) != before


def test_a_file_of_another_size_is_another(path: Path) -> None:
    before = get_stamp(path)
    path.write_text("ab")
    os.utime(path, ns=(1, 1))
    assert get_stamp(path) != before


def test_a_file_that_was_moved_into_its_place_is_another(path: Path) -> None:
    before = get_stamp(path)
    other = path.with_name("other")
    other.write_text("b")
    os.utime(other, ns=(1, 1))
    other.replace(path)
    assert get_stamp(path) != before


def test_no_file_has_no_stamp(path: Path) -> None:
    path.unlink()
    assert get_stamp(path) is None


def test_a_file_that_cannot_be_read_has_the_reason(path: Path) -> None:
    assert "Not a directory" in str(get_stamp(path / "below"))
