"""The size rules of docs/architecture.md, held by a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
HEAD = re.compile(r"( *)(?:async def|def|class|@)\b")
SOURCES = sorted(
    path
    for folder in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)


def may_be_long(lines: list[str]) -> bool:
    """Whether a function may be too long, seen without parsing: the next head is far below."""
    found = [(at, HEAD.match(line)) for at, line in enumerate(lines)]
    heads = [(at, len(it.group(1))) for at, it in found if it is not None]
    for number, (at, indent) in enumerate(heads):
        ends = (end for end, other in heads[number + 1 :] if other <= indent)
        if next(ends, len(lines)) - at > MAX_FUNCTION_LINES:
            return True
    return False


def too_long(path: Path, root: Path = ROOT) -> Iterator[str]:
    """The parts of a file that exceed their limits."""
    text, name = path.read_text(), path.relative_to(root)
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield f"{name} has {len(lines)} lines; split it by noun"
    if not may_be_long(lines):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            count = node.end_lineno - node.lineno + 1
            if count > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {count} lines"


def test_files_and_functions_stay_short() -> None:
    assert len(SOURCES) > 1000
    assert [line for path in SOURCES for line in too_long(path)] == []


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("def f():\n" + "    x = 1\n" * MAX_FILE_LINES)
    file, function = too_long(path, tmp_path)
    assert file == "long.py has 501 lines; split it by noun"
    assert function == "long.py:1: f has 501 lines"
