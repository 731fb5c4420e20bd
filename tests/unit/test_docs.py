"""The docs only name existing links, tests and modules, and their Python can be parsed."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hostelry.cli.main import command_tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "hostelry"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
INLINE = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"[a-z_]+(?:\.[a-z_]+)*(?:\.[A-Z]\w*)?")
STEP = re.compile(r"^\d+\. `([\w/]+)`: `(\w+)`", re.MULTILINE)
FOLDER = re.compile(r"^  ([a-z0-9_]+)/ ", re.MULTILINE)
SHELL_LINE = re.compile(r"^(?:eval \"\$\(|\.venv/bin/)?(hostelry [^#\n)]*)", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
SHOWN_BY = re.compile(r"\| ([^|]+) \|$", re.MULTILINE)


@cache
def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def inline(page: Path) -> list[str]:
    return INLINE.findall(prose(page))


@cache
def text_of_all_tests() -> str:
    files = sorted((ROOT / "tests").rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@cache
def names_in(module: Path) -> set[str]:
    """The names that a module defines or imports at its top level."""
    found: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def is_there(dotted: str) -> bool:
    """Whether `store.protocol.Store` or `hostelry.engine` names a module, or something in one."""
    parts = dotted.removeprefix("hostelry.").split(".")
    place = PACKAGE
    for position, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
            continue
        module = place / f"{part}.py"
        left = parts[position + 1 :]
        return module.is_file() and (not left or left[0] in names_in(module))
    return True


def names_code(text: str) -> bool:
    """Whether an inline text is a dotted name of this package, three parts or more."""
    if not DOTTED.fullmatch(text) or "." not in text:
        return False
    parts = text.split(".")
    return parts[0] == "hostelry" or (len(parts) > 2 and (PACKAGE / parts[0]).is_dir())


def test_there_are_pages() -> None:
    assert len(PAGES) > 12


def test_links_lead_to_files() -> None:
    links = [(page, it) for page in PAGES for it in LINK.findall(prose(page)) if "://" not in it]
    assert [(page, it) for page, it in links if not (page.parent / it).exists()] == []


def test_paths_exist() -> None:
    folders = ("tests/", "src/", "docs/", "examples/", "benchmarks/")
    paths = [
        (page, text)
        for page in PAGES
        for text in inline(page)
        if re.fullmatch(r"[\w./]+", text)
        and (text.startswith(folders) or ("/" in text and text.endswith(".py")))
    ]
    bases = (ROOT, PACKAGE.parent, PACKAGE, PACKAGE / "engine")
    assert [it for it in paths if not any((base / it[1]).exists() for base in bases)] == []


def test_dotted_names_exist() -> None:
    named = [(page, text) for page in PAGES for text in inline(page) if names_code(text)]
    assert [it for it in named if not is_there(it[1])] == []


def test_the_walks_name_code_of_their_folders() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = STEP.findall(page.partition("## 6. Walks")[2])
    assert len(steps) > 40
    wrong = []
    for folder, name in steps:
        defined = re.compile(rf"^(?:async def|def|class) {name}\b", re.MULTILINE)
        files = (PACKAGE / folder).rglob("*.py")
        if not any(defined.search(file.read_text(encoding="utf-8")) for file in files):
            wrong.append((folder, name))
    assert wrong == []


def test_the_picture_of_the_house_has_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = FOLDER.findall(page.partition("src/hostelry/\n")[2].partition("```")[0])
    there = [it.parent.name for it in PACKAGE.glob("*/__init__.py")]
    assert sorted(shown) == sorted(there)


def command_lines(page: Path) -> list[str]:
    """Every `hostelry ...` that a page shows, in its text or on a separate line."""
    fenced = "\n".join(body for _, body in FENCE.findall(page.read_text(encoding="utf-8")))
    found = [it for it in inline(page) if it.startswith("hostelry ")]
    return found + [it.group(1) for it in SHELL_LINE.finditer(fenced)]


def test_commands_exist_and_have_the_flags() -> None:
    tree = command_tree()
    wrong: list[tuple[Path, str]] = []
    shown = [(page, line) for page in PAGES for line in command_lines(page)]
    for page, line in shown:
        command: Any = tree
        words = line.partition(" -- ")[0].split()[1:]
        while words and words[0][0] != "-" and hasattr(command, "commands"):
            command = command.commands.get(words.pop(0))
        flags = {it for known in getattr(command, "params", ()) for it in known.opts}
        if command is None or not flags.union(["--help"]).issuperset(FLAG.findall(" ".join(words))):
            wrong.append((page, line))
    assert wrong == []


def test_the_page_of_commands_has_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands: Any = command_tree()
    visible = [name for name, it in commands.commands.items() if not it.hidden]
    assert [it for it in visible if f"`hostelry {it}" not in page] == []


def test_python_in_the_docs_parses() -> None:
    for page in PAGES:
        for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
            if language == "python":
                ast.parse(code, str(page))


SECTIONS = [
    section
    for page in (ROOT / "docs" / "failures.md", ROOT / "SECURITY.md")
    for section in page.read_text(encoding="utf-8").split("\n## ")[1:]
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda text: text.partition("\n")[0])
def test_every_row_of_failures_and_threats_is_shown_by_a_test(section: str) -> None:
    tests = text_of_all_tests()
    cells = [INLINE.findall(cell) for cell in SHOWN_BY.findall(section)[2:]]
    assert len(cells) > 2
    assert all(cells), "a row names no test"
    shown = [it for cell in cells for it in cell]
    assert [it for it in shown if f"def {it}(" not in tests and f'"{it}"' not in tests] == []
