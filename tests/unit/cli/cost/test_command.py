"""`hostelry cost`: the files that it writes."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.cost.command import (
    check_outputs,
    cost,
    find_prices,
    note_unknown_types,
    write_rows,
)
from hostelry.cost.prices import NO_PRICES, parse_prices


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


def test_without_prices_none_is_known_and_the_remedy_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.toml"
    assert find_prices(path, None) == NO_PRICES
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"No cost is known without prices: write {path}. `hostelry cost")


def test_focus_needs_prices(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=r"^--focus f\.csv needs prices: write ") as caught:
        find_prices(tmp_path / "prices.toml", Path("f.csv"))
    assert not isinstance(caught.value, UsageError)


@cases(
    "types, used, shown",
    case("a known type", ["ml.m5.large"], [], []),
    case("a typing error", ["ml.m5.lrge"], [], ["did you mean ml.m5.large"]),
    case("an unknown type that was used", ["own"], ["own"], []),
    case("many", [f"ml.m5.x{it}" for it in range(10_000)], [], [*["ml.m5."] * 5, "9,995 further"]),
)
def test_prices_of_unknown_types_are_named(
    types: list[str], used: list[str], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [f'[instances."{it}"]\nprice_per_hour = 1\n' for it in types]
    text = 'currency = "USD"\n' + "".join(tables)
    note_unknown_types(Path("prices.toml"), parse_prices(text), used)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(shown)
    for line, part in zip(lines, shown, strict=True):
        assert line.startswith("warning: prices.toml: ")
        assert part in line


@cases("name", case("empty", ""), case("a space", " "))
def test_a_name_without_letters_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"^'{name}' is not a valid name: give an endpoint"):
        cost(name)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "a.csv"
    with pytest.raises(TerminalError, match=f"^{path} cannot be written: No such file"):
        write_rows(path, [("a", "b")])
