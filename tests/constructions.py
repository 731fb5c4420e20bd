"""Counts of sentence constructions that must be read twice, in each package and each page.

    python -m tests.constructions              a table by room
    python -m tests.constructions PATH ...     each place below PATH, with its construction
    python -m tests.constructions --check      exit status 1 if a room has more than its ceiling
    python -m tests.constructions --lower      replace ceilings by present counts that are smaller

`tests/ceilings.json` has the most that each room may have. CONTRIBUTING.md has the rules, with
better sentences.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.words import docstrings, files

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = Path(__file__).with_name("ceilings.json")
PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md")
SENTENCES = {
    "where for if": (
        r"\bwhere (?:there|it|they|one|none|no|nothing|something|that|this|these|its|their)\b"
    ),
    "is none, is no": (
        r"\b(?:is|are|was|were|be) none\b|\b(?:is|are|was|were) no (?!longer|more|less)[a-z]"
    ),
    "what is, as a noun": (
        r"(?<!^)(?<!\. )\bwhat (?:is|are|was|were|has|have|had|it|they|the|a|an|its|this|that|each"
        r"|no|can|may|must|does|do|came|comes|follows|others|remains)\b"
    ),
    "that of, those of": r"\b(?:that|those) of\b",
    "semicolon": r";(?=\s|$)",
    "beside, of its own, so many": r"\bbeside\b|\bof (?:its|their|his|one's) own\b|\bso many\b",
    "one X a Y": r"\bone [a-z]+ an? [a-z]+\b",
}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in SENTENCES.items()}
CODE = re.compile(r"`[^`]*`|https?://\S+|&[a-z]+;")
FENCE = re.compile(r"^\s*```")
PARTICIPLES = re.compile(
    r"[a-z]{2,}ed|found|given|taken|sent|kept|held|lost|made|known|written|read|seen|shown|left|put"
    r"|run|built|bound|drawn|grown|hidden|chosen|broken|begun|gone|done|thrown|met|paid|said|sold"
)
OF = re.compile(r"^_*(?:of|with)_|_of$|_of_")
NAME_KINDS = ("participle as a function's name", "x_of, of_x, with_x")

Place = tuple[int, str, str]


def in_prose(text: str, line: int) -> Iterator[Place]:
    """Each construction in prose that begins at `line`: its line, kind and words."""
    text = CODE.sub(lambda code: "`" + "\n" * code.group().count("\n") + "`", text)
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield line + text.count("\n", 0, match.start()), kind, match.group()


def in_page(source: str) -> Iterator[Place]:
    """The constructions of a Markdown page, outside its blocks of code."""
    fenced, prose = False, []
    for line in source.split("\n"):
        fence = FENCE.match(line) is not None
        prose.append("" if fence or fenced else line)
        fenced = fenced != fence
    yield from in_prose("\n".join(prose), 1)


def in_python(source: str, names: bool = True) -> Iterator[Place]:
    """The constructions of docstrings and comments, and with `names` of function names."""
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if names and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_function_name(node)
    for docstring in docstrings(nodes):
        yield from in_prose(str(docstring.value), docstring.lineno)
    # Cutting a file into tokens is slow, so it is done only if a comment may have a construction.
    after = "\n".join(line.partition("#")[2] for line in source.split("\n")).replace("`", " ")
    if not any(pattern.search(after) for pattern in PATTERNS.values()):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from in_prose(token.string, token.start[0])


def _in_function_name(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Place]:
    """A property is a noun or an adjective, so its name is not looked at."""
    name = node.name.strip("_")
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return
    if PARTICIPLES.fullmatch(name):
        yield node.lineno, NAME_KINDS[0], node.name
    if OF.search(node.name):
        yield node.lineno, NAME_KINDS[1], node.name


def places(path: Path) -> list[Place]:
    """The constructions of one file, by line."""
    source = path.read_text(encoding="utf-8")
    in_tests = path.resolve().is_relative_to(ROOT / "tests")
    return sorted(in_page(source) if path.suffix == ".md" else in_python(source, not in_tests))


def rooms() -> dict[str, list[Path]]:
    """The files of each room: a package, a page, or one of the folders without users."""
    found = {
        folder.name: sorted(folder.rglob("*.py"))
        for folder in sorted((ROOT / "src" / "hostelry").iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    }
    found["hostelry_lab"] = sorted((ROOT / "src" / "hostelry_lab").rglob("*.py"))
    found |= {folder: sorted((ROOT / folder).rglob("*.py")) for folder in ("tests", "benchmarks")}
    pages = [ROOT / page for page in PAGES] + sorted((ROOT / "docs").rglob("*.md"))
    return found | {str(page.relative_to(ROOT)): [page] for page in pages}


def counts() -> dict[str, dict[str, int]]:
    """The number of each construction in each room, without zeros."""
    return {
        room: dict(sorted(Counter(kind for path in paths for _, kind, _ in places(path)).items()))
        for room, paths in rooms().items()
    }


def above(ceilings: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> list[str]:
    """A sentence for each room that has more of a construction than its ceiling."""
    return [
        f'{room}: {number} times "{kind}", {ceilings.get(room, {}).get(kind, 0)} at most'
        for room, kinds in now.items()
        for kind, number in kinds.items()
        if number > ceilings.get(room, {}).get(kind, 0)
    ]


def lower(ceilings: dict[str, dict[str, int]], now: dict[str, dict[str, int]]) -> None:
    """Write the smaller of each ceiling and the present count. A new room begins at its count."""
    fresh = {
        room: {
            kind: min(number, ceilings[room].get(kind, 0)) if room in ceilings else number
            for kind, number in kinds.items()
        }
        for room, kinds in now.items()
        if kinds
    }
    CEILINGS.write_text(json.dumps(fresh, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print the table, the places below the paths of `arguments`, or the rooms above a ceiling."""
    ceilings = json.loads(CEILINGS.read_text(encoding="utf-8"))
    if arguments == ["--lower"]:
        lower(ceilings, counts())
    elif arguments == ["--check"]:
        problems = above(ceilings, counts())
        print("\n".join(problems) or "plain English: no room is above its ceiling")
        return 1 if problems else 0
    elif arguments:
        for path in files([Path(it) for it in arguments]):
            for line, kind, words in places(path):
                print(f"{path}:{line}: {kind}: {words}")
    else:
        kinds = [*SENTENCES, *NAME_KINDS]
        for number, kind in enumerate(kinds, 1):
            print(f"{number}: {kind}")
        for room, found in counts().items():
            row = "".join(f"{found.get(kind, 0):6}" for kind in kinds)
            print(f"{room:32}{row}{sum(found.values()):7}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
