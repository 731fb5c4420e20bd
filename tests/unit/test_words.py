"""The linter of plain English finds each listed word, and nothing else."""

import textwrap
from pathlib import Path

import pytest
from tests.words import findings, in_markdown, in_python, main

PYTHON = {
    "a text with a wrong word is found": ('LOG = "nobody waits"', ['"nobody": say']),
    "a comment with a wrong word is found": ("x = 1  # told by control", ['"told": say']),
    "a word is found whatever its case": ('"""A gateway.\n\nNobody waits.\n"""', ['"Nobody": say']),
    "a name with a wrong part is found": ("def told_once() -> None: ...", ["name told_once"]),
    "a part of a name in capitals is found": ("UNTOLD_S = 4.0", ["name UNTOLD_S"]),
    "each of two names is found": ("telling_apart_is = untold = 1", ["name", "name"]),
    "a name between backticks is no prose": ('"""Reads `wish.json`."""', []),
    "a module docstring that opens with a question is found": (
        '"""What a copy is."""',
        ["opening"],
    ),
    "a module docstring that opens with a noun is not": ('"""Copies of a model."""', []),
    "`it` in a comprehension of one line is not found": ("a = [it for it in ()]", []),
    "`it` in one of two lines is found": ("a = [\n    it for it in ()\n]", ["`it`"]),
    "`it` in a loop is found": ("for it in ():\n    print(it)", ["`it`"]),
    "a name that is only read belongs to somebody else": ("print(stream.tell(), whom)", []),
}


@pytest.mark.parametrize(("source", "wanted"), PYTHON.values(), ids=PYTHON)
def test_python_is_read_as_names_and_prose(source: str, wanted: list[str]) -> None:
    found = [problem for _, problem in in_python(source, texts_are_data=False)]
    assert len(found) == len(wanted)
    for problem, part in zip(found, wanted, strict=True):
        assert part in problem.replace("module docstring begins", "opening")


def test_texts_of_tests_are_data() -> None:
    source = 'def test_x() -> None:\n    """Somebody waits."""\n    assert f("nobody")\n'
    assert [line for line, _ in in_python(source, texts_are_data=True)] == [2]


def test_a_finding_has_the_line_it_is_on() -> None:
    source = '"""Copies.\n\nOne line.\nThen nobody.\n"""\n'
    assert [line for line, _ in in_python(source, texts_are_data=False)] == [4]


def test_code_in_a_page_is_not_prose() -> None:
    page = textwrap.dedent("""\
        Nobody waits at the [gateway](https://example.com/door).
        ```
        nobody
        ```
        `test_nobody_waits` is a test.
        """)
    assert [line for line, _ in in_markdown(page)] == [1]


def test_the_exit_status_says_whether_lines_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.words.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Plain.\n")
    assert main([str(page)]) == 0
    page.write_text("Plain.\nAnew.\n")
    assert main([str(page)]) == 1
    assert "page.md:2:" in capsys.readouterr().out
    assert findings(page) == [(2, '"Anew": say again')]
