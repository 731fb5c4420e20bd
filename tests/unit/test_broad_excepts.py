"""Broad excepts are listed in CONTRIBUTING.md, and stand nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hostelry"
BROAD = {"Exception", "BaseException", "BaseExceptionGroup", "ExceptionGroup"}


def names_of(node: ast.expr | None) -> set[str]:
    """The classes of an `except`; a bare one catches BaseException."""
    if node is None:
        return {"BaseException"}
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {ast.unparse(part).rpartition(".")[2] for part in parts}


def swallows(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` of everything ends otherwise than by raising it on."""
    last = handler.body[-1]
    passes_on = isinstance(last, ast.Raise) and last.exc is None
    return bool(names_of(handler.type) & BROAD) and not passes_on


def broad_lines(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and swallows(node):
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            caught = {ast.unparse(argument) for argument in node.args}
            if caught & BROAD:
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "count"),
    [
        pytest.param("try: f()\nexcept Exception: g()", 1, id="Exception"),
        pytest.param("try: f()\nexcept: g()", 1, id="without a class"),
        pytest.param("try: f()\nexcept (OSError, BaseException): g()", 1, id="one of two"),
        pytest.param("try: f()\nexcept* Exception: g()", 1, id="of a group"),
        pytest.param("with contextlib.suppress(Exception): f()", 1, id="suppressed"),
        pytest.param("try: f()\nexcept BaseException:\n g()\n raise", 0, id="raised on"),
        pytest.param("try: f()\nexcept OSError: g()", 0, id="a narrow one"),
    ],
)
def test_what_counts_as_broad(source: str, count: int) -> None:
    assert len(list(broad_lines(source))) == count


def test_only_the_listed_edges_catch_everything() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^- `except Exception` stands .*?(?=^- )", text, re.M | re.S)
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(broad_lines(path.read_text(encoding="utf-8")))
    }
    assert found == set(re.findall(r"`([\w/]+\.py)`", sentence))
