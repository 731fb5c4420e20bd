"""The regular expressions in a package's source: their places, and whether they are anchored."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

HINT = re.compile(r"^ *import re$|\bMeta\(pattern", re.MULTILINE)
# Functions that take a pattern, and the position of their argument with flags.
READING = {"compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2}
READING |= {"split": 3, "sub": 4, "subn": 4}
ANCHORED = {"match", "fullmatch"}


@dataclass(frozen=True)
class Found:
    """A regular expression. Has no text if that is only known at run time."""

    place: str
    line: int
    pattern: str | bytes | None
    flags: int
    is_anchored: bool


def patterns_of(package: Path) -> Iterator[Found]:
    """The regular expressions in the package's files."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    for path, text in texts.items():
        if not HINT.search(text):
            continue
        tree = ast.parse(text)
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        start = f"from {module} import "
        importing = "\n".join(it for it in texts.values() if start in it)
        for name, call in _calls(tree):
            pattern, flags = _arguments(module, call)
            is_anchored = _method(call) in ANCHORED or (
                name in _anchored_names(tree)
                and not re.search(rf"^{start}(\([^)]*|.*)\b{name}\b", importing, re.MULTILINE)
            )
            place = f"{path.relative_to(package)}:{name}"
            yield Found(place, call.lineno, pattern, flags, is_anchored)


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Each call that takes a pattern, with the function, class or name that contains it."""
    for top in tree.body:
        match top:
            case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
                name = ast.unparse(target)
            case _:
                name = getattr(top, "name", "")
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and _method(node):
                yield name, node


def _method(call: ast.Call) -> str:
    """The name of a function of `re` that takes a pattern. Empty for another function."""
    match call.func:
        case ast.Attribute(value=ast.Name("re"), attr=name) if name in READING:
            return name
        case ast.Attribute(value=ast.Name("msgspec"), attr="Meta"):
            return "Meta" if any(it.arg == "pattern" for it in call.keywords) else ""
    return ""


def _arguments(module: str, call: ast.Call) -> tuple[str | bytes | None, int]:
    """The pattern and its flags, if literals and names of the module determine them."""
    named: Mapping[str | None, ast.expr] = {it.arg: it.value for it in call.keywords}
    pattern = call.args[0] if call.args else named["pattern"]
    rest = call.args[READING.get(_method(call), 0) :]
    flags = rest[0] if rest and call.args else named.get("flags", ast.Constant(0))
    try:
        return _value(module, pattern), int(_value(module, flags))
    except NameError:
        return None, 0


def _value(module: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    code = compile(ast.Expression(node), module, "eval")
    if not all(it.isupper() or it == "re" for it in code.co_names):
        raise NameError(module)
    is_plain = not code.co_names or code.co_names[0] == "re"
    return eval(code, {"re": re} if is_plain else vars(import_module(module)))


def _anchored_names(tree: ast.Module) -> set[str]:
    """The names of patterns that only match at the beginning of a text."""
    anchored = {
        id(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ANCHORED
        and len(node.args) == 1
    }
    loaded = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    return {it.id for it in loaded} - {it.id for it in loaded if id(it) not in anchored}
