"""The counter of constructions finds each kind, and a room's counts may only decrease."""

import json
from pathlib import Path

import pytest
from tests import constructions
from tests.cases import case, cases
from tests.constructions import above, in_page, in_python, lower

PYTHON = {
    "where that means if is counted": ('"""None where it ended."""', ["where for if"]),
    "where that means a place is not": ('"""The folder where files lie."""', []),
    "is none is counted": ('"""400 for a body that is none."""', ["is none, is no"]),
    "is no longer is not": ('"""A copy that is no longer ready."""', []),
    "what as a noun is counted": ('"""Returns what it has."""', ["what is, as a noun"]),
    "a question is not": ('"""Copies. What is a copy?"""', []),
    "those of is counted": ('"""Copies, and those of adapters."""', ["that of, those of"]),
    "a semicolon is counted": ('"""A copy starts; it answers."""', ["semicolon"]),
    "a semicolon in code is not": ('"""Reads `a; b`."""', []),
    "a comment is read": ("x = 1  # so many", ["beside, of its own, so many"]),
    "one X a Y is counted": ('"""Starts one process a copy."""', ["one X a Y"]),
    "a participle as a function's name is counted": (
        "def refused() -> None: ...",
        ["participle as a function's name"],
    ),
    "a property may have one": ("class A:\n    @property\n    def ended(self) -> bool: ...", []),
    "a name with of is counted": ("def copies_of() -> None: ...", ["x_of, of_x, with_x"]),
    "a text is not read": ('x = "a; b; so many"', []),
}


@pytest.mark.parametrize(("source", "wanted"), PYTHON.values(), ids=PYTHON)
def test_python_is_read_as_docstrings_comments_and_names(source: str, wanted: list[str]) -> None:
    assert [kind for _, kind, _ in in_python(source)] == wanted


def test_names_of_tests_are_not_counted() -> None:
    assert list(in_python("def refused() -> None: ...", names=False)) == []


def test_code_in_a_page_is_not_prose_and_lines_are_kept() -> None:
    page = "A copy; a model.\n```\na; b\n```\nThe copies,\nbeside `x;\ny`; done.\n"
    assert [line for line, _, _ in sorted(in_page(page))] == [1, 6, 7]


@cases(
    "ceilings, now, problems",
    case("as many", {"api": {"semicolon": 3}}, {"api": {"semicolon": 3}}, 0),
    case("one more", {"api": {"semicolon": 3}}, {"api": {"semicolon": 4}}, 1),
    case("a room without a ceiling has zero", {}, {"new": {"semicolon": 1}}, 1),
)
def test_a_room_with_more_than_its_ceiling_is_named(
    ceilings: dict[str, dict[str, int]], now: dict[str, dict[str, int]], problems: int
) -> None:
    assert len(above(ceilings, now)) == problems


def test_lowering_never_raises_a_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constructions, "CEILINGS", tmp_path / "ceilings.json")
    lower({"api": {"semicolon": 3}}, {"api": {"semicolon": 5, "where for if": 1}, "new": {"x": 2}})
    kept = json.loads((tmp_path / "ceilings.json").read_text())
    assert kept == {"api": {"semicolon": 3, "where for if": 0}, "new": {"x": 2}}
