"""`hostelry cost`: the files that it writes."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.cost.command import check_outputs, write_rows


@cases(
    "files",
    case("the prices", ("prices.toml", None)),
    case("the prices by another path", (None, "sub/../prices.toml")),
    case("one file for both", ("a.csv", "a.csv")),
)
def test_no_file_of_the_command_is_overwritten(
    files: tuple[str | None, ...], tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    given = [None if it is None else tmp_path / it for it in files]
    with pytest.raises(UsageError, match="would overwrite another file of this command"):
        check_outputs(tmp_path / "prices.toml", *given)


def test_different_files_are_taken(tmp_path: Path) -> None:
    check_outputs(tmp_path / "prices.toml", tmp_path / "a.csv", tmp_path / "b.csv")
    check_outputs(tmp_path / "prices.toml", None, None)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "a.csv"
    with pytest.raises(TerminalError, match=f"^{path} cannot be written: No such file"):
        write_rows(path, [("a", "b")])
