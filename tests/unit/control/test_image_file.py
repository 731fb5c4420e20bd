import logging
import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.control.image_file import ImageFile

LMI = "djl-inference:0.27.0"
OWN = '[[image]]\npattern = "{}"\ncommand = ["serve"]\n' + (
    '[image.probe]\ncontent_type = "application/json"\nbody = "{{}}"\n'
)


def write(path: Path, text: str, mtime_s: float) -> None:
    path.write_text(text)
    os.utime(path, (mtime_s, mtime_s))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "images.toml"


def test_without_a_file_the_built_in_rules_hold(path: Path) -> None:
    images = ImageFile(path)
    assert images.is_llm(LMI)
    assert not images.is_llm("echo:1")


def test_a_rule_that_is_added_or_taken_away_holds_at_the_next_use(path: Path) -> None:
    images = ImageFile(path)
    assert images.is_llm(LMI)
    write(path, OWN.format("djl-*"), 1)
    assert not images.is_llm(LMI)
    write(path, OWN.format("ech-*"), 2)  # the same size
    assert images.is_llm(LMI)
    write(path, OWN.format("djl-*"), 3)
    assert not images.is_llm(LMI)
    path.unlink()
    assert images.is_llm(LMI)


@cases(
    "fault",
    case("no TOML", "[[image]\n"),
    case("a rule without a command", '[[image]]\npattern = "djl-*"\n'),
    case("no text", "\N{REPLACEMENT CHARACTER}" * 9),
)
def test_a_broken_file_keeps_what_held_and_is_logged_once(
    path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, OWN.format("djl-*"), 1)
    images = ImageFile(path)
    assert not images.is_llm(LMI)
    with caplog.at_level(logging.WARNING):
        write(path, fault, 2)
        assert [images.is_llm(LMI) for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert str(path) in caplog.text
    write(path, "", 3)
    assert images.is_llm(LMI)


def test_a_file_that_is_broken_from_the_start_leaves_the_built_in_rules(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, "[[image]\n", 1)
    assert ImageFile(path).is_llm(LMI)
    assert len(caplog.records) == 1


def test_a_file_that_cannot_be_read_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    images = ImageFile(path)
    assert [images.is_llm(LMI) for _ in range(3)] == [True] * 3
    assert len(caplog.records) == 1
    loop = path.parent / "loop"
    loop.symlink_to(loop)
    assert ImageFile(loop).is_llm(LMI)
