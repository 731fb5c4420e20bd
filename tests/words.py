"""Linter of plain English: words that are wrong in this project, with what to say instead.

    python tests/words.py [PATH ...]      exit status 1 where a line breaks a rule

Reads names, comments, docstrings and texts of Python files, and the prose of Markdown pages. In
tests, texts are data and are not read. What is between backticks is code, or a name of others.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs")
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
OWN = frozenset({Path(__file__).name, "test_words.py"})
INSTEAD = {
    r"tell|tells|telling|told": "report, notify, publish, return, say",
    r"nobody": "no client, no process, none",
    r"whoever|whomever|whom": "the caller, the client, the process that ...",
    r"somebody|someone": "a client, a caller, a process",
    r"everybody|everyone|anybody|anyone": "all clients, any client, any process",
    r"anew": "again",
    r"afar": "remote",
    r"wish|wishes|wished|wishing": "desired, request",
    r"hear|hears|heard": "receive, record",
    r"stranger|strangers|guest|guests": "untrusted client, connection, tenant",
    r"fellow|fellows": "peer",
    r"door|doors": "gateway, proxy",
    r"what of|is there of|worth to|learn of|learns of|goes on|go on|passed over": "plain words",
}
IN_NAMES = {
    r"told|tell|tells|telling|untold": "reported, published, notified",
    r"said|says": "reported, text, message",
    r"wish|wishes|wished": "desired",
    r"nobody|whom|somebody|anew|afar": "a noun",
    r"hear|heard": "receive, record",
    r"stranger|strangers|guest|guests": "connection, client, tenant",
    r"fellow|fellows|door|doors": "peer; gateway, proxy",
}
OPENINGS = frozenset({"What", "Which", "How", "Whether", "When", "Where", "Who", "Whose", "Why"})
WORDS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): it for words, it in INSTEAD.items()}
ANY = re.compile("|".join(it.pattern for it in WORDS), re.IGNORECASE)
NAMES = {re.compile(rf"^(?:{words})$"): it for words, it in IN_NAMES.items()}
CODE = re.compile(r"`[^`\n]*`|https?://\S+|\b[\w-]+\.json\b")
FENCE = re.compile(r"^\s*```")
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

Finding = tuple[int, str]


def in_text(text: str, line: int) -> Iterator[Finding]:
    """Words that are wrong in prose which begins at `line`."""
    if ANY.search(text) is None:
        return
    for number, part in enumerate(CODE.sub("``", text).splitlines(), line):
        for pattern, instead in WORDS.items():
            for match in pattern.finditer(part):
                yield number, f'"{match.group()}": say {instead}'


def in_name(name: str, line: int) -> Iterator[Finding]:
    """Words that are wrong as a part of a name."""
    for part in PARTS.findall(name):
        for pattern, instead in NAMES.items():
            if pattern.match(part.lower()):
                yield line, f'name {name}, "{part}": say {instead}'


def in_python(source: str, texts_are_data: bool) -> Iterator[Finding]:
    """Everything wrong in a Python file."""
    tree = ast.parse(source)
    yield from _in_module(tree)
    nodes = list(ast.walk(tree))
    ids = {id(node) for node in docstrings(nodes)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in ids or not texts_are_data:
                yield from in_text(node.value, node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from in_name(node.name, node.lineno)
        elif isinstance(node, ast.arg):
            yield from in_name(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from in_name(node.id, node.lineno)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from in_name(node.attr, node.lineno)
        yield from _in_loop(node)
    yield from _in_comments(source)


def in_markdown(source: str) -> Iterator[Finding]:
    """Words that are wrong in a page, outside its blocks of code."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield from in_text(line, number)


def findings(path: Path) -> list[Finding]:
    """The findings in one file, by line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return sorted(set(in_markdown(source)))
    return sorted(set(in_python(source, path.is_relative_to(ROOT / "tests"))))


def files(paths: list[Path]) -> Iterator[Path]:
    """The Python files and Markdown pages at or below `paths`."""
    for path in paths:
        for found in sorted(path.rglob("*")) if path.is_dir() else (path,):
            if found.suffix in {".py", ".md"} and found.name not in OWN:
                yield found


def _in_module(tree: ast.Module) -> Iterator[Finding]:
    opening = (ast.get_docstring(tree) or "").split(maxsplit=1)[:1]
    if opening and opening[0].strip(",:") in OPENINGS:
        yield 1, f'module docstring begins with "{opening[0]}": begin with a noun or a verb'


def _in_comments(source: str) -> Iterator[Finding]:
    """Wrong words after a `#`. A file is cut into tokens only if one may have any."""
    after = [line.partition("#")[2] for line in source.split("\n")]
    if not any(True for _ in in_text("\n".join(after).replace("`", " "), 1)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from in_text(token.string, token.start[0])


def _in_loop(node: ast.AST) -> Iterator[Finding]:
    """`it` may only name the variable of a one-line loop. A longer body needs a noun."""
    if isinstance(node, ast.For | ast.AsyncFor):
        long, targets = True, [node.target]
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        long = (node.end_lineno or node.lineno) > node.lineno
        targets = [it.target for it in node.generators]
    else:
        return
    if long and any(isinstance(it, ast.Name) and it.id == "it" for it in targets):
        yield node.lineno, "loop variable `it` of more than one line: use a noun"


def docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    """The docstrings of modules, classes and functions among `nodes`."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def main(arguments: list[str]) -> int:
    """Print the findings, and return the exit status."""
    count = 0
    for path in files(
        [Path(it).resolve() for it in arguments] or [ROOT / it for it in FOLDERS + PAGES]
    ):
        for line, problem in findings(path):
            count += 1
            print(f"{path.relative_to(ROOT)}:{line}: {problem}")
    print(f"{count} lines to reword" if count else "plain English: no line to reword")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
