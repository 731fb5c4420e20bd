"""Number of times that an expression can repeat a value that it reads. Pure.

`[@, @]` has its value twice, and a row of them, joined by pipes, doubles it each time. Parts that
do not overlap, as `{x: input.x, y: input.y}`, repeat nothing.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

Node = Mapping[str, Any]
Path = tuple[Any, ...]  # of fields and indexes; () is the whole value

_CHAINS = frozenset({"subexpression", "pipe", "index_expression"})
_PROJECTIONS = frozenset({"projection", "value_projection", "filter_projection"})
_CHOICES = frozenset({"or_expression", "and_expression"})
_SMALL = frozenset({"comparator", "not_expression", "literal"})  # whatever the scope has
_SMALL_FUNCTIONS = frozenset(
    {"abs", "avg", "ceil", "contains", "ends_with", "floor", "length", "starts_with", "sum", "type"}
)
_ESCAPES = 2  # to_string writes a quotation mark as two characters, each time


def num_copies(node: Node) -> int:
    """The most copies of one part of its value that the result of `node` can have."""
    kind, children = node["type"], node["children"]
    if kind in _CHAINS:
        return prod(num_copies(it) for it in children)
    if kind in _PROJECTIONS:
        return prod(num_copies(it) for it in children[:2])
    if kind in _CHOICES:
        return max(num_copies(it) for it in children)
    if kind in ("multi_select_list", "multi_select_dict"):
        return _most_overlapping(children)
    if kind == "function_expression" and node["value"] not in _SMALL_FUNCTIONS:
        return _of_function(node["value"], children)
    return num_copies(children[0]) if kind in ("expref", "flatten", "key_val_pair") else 1


def _of_function(name: str, arguments: Sequence[Node]) -> int:
    if name == "map":
        return prod(num_copies(it) for it in arguments)
    copies = _most_overlapping([it for it in arguments if it["type"] != "expref"])
    return copies * _ESCAPES if name == "to_string" else copies


def _most_overlapping(nodes: Sequence[Node]) -> int:
    """The most copies of one part, where the results of all `nodes` are there together."""
    parts = [(_path(it), num_copies(it)) for it in nodes if not _is_small(it)]
    return max(
        (
            sum(copies for above, copies in parts if path[: len(above)] == above)
            for path, _ in parts
        ),
        default=1,
    )


def _is_small(node: Node) -> bool:
    kind = node["type"]
    if kind == "key_val_pair":
        return _is_small(node["children"][0])
    return kind in _SMALL or (kind == "function_expression" and node["value"] in _SMALL_FUNCTIONS)


def _path(node: Node) -> Path:
    """Where the part is that `node` reads; the part around it where that is not known."""
    return _parts(node)[0]


def _parts(node: Node) -> tuple[Path, bool]:
    """The path, and whether it is all that the node does."""
    kind, children = node["type"], node["children"]
    if kind == "field":
        return (node["value"],), True
    if kind == "index":
        return ((node["value"],), True) if node["value"] >= 0 else ((), False)
    if kind in ("current", "identity"):
        return (), True
    if kind in _CHAINS:
        path: Path = ()
        for child in children:
            more, is_whole = _parts(child)
            path += more
            if not is_whole:
                return path, False
        return path, True
    if kind in _PROJECTIONS or kind in ("flatten", "key_val_pair"):
        return _parts(children[0])[0], kind == "key_val_pair"
    return (), False
