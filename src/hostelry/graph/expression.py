"""JMESPath expressions: checked before a call, evaluated in the call. Pure.

The scope of an expression is an object with the request as `input`, and each step by its name.
JMESPath returns null for a field of a text, and reports a wrong function only when it calls the
function. Here both are faults of the document, as far as types are known.

An expression may repeat a value that it reads. `[@, @]` contains its value twice, and each further
such list after a pipe doubles the value again. Parts that do not overlap, as in
`{x: input.x, y: input.y}`, repeat nothing.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions, signature

from hostelry.base.errors import HostelryError
from hostelry.graph.content import ValueType, common_type, find_type

Node = Mapping[str, Any]
Path = tuple[Any, ...]  # fields and indexes, or () for the whole value
_CHAINS = frozenset({"subexpression", "pipe", "index_expression"})
_PROJECTIONS = frozenset({"projection", "value_projection", "filter_projection"})
_CHOICES = frozenset({"or_expression", "and_expression"})
_SMALL = frozenset({"comparator", "not_expression", "literal"})  # with small results
_SMALL_FUNCTIONS = frozenset(
    {"abs", "avg", "ceil", "contains", "ends_with", "floor", "length", "starts_with", "sum", "type"}
)
_ESCAPES = 2  # to_string doubles each quotation mark
MAX_CHARACTERS = 2000
MAX_COPIES = 32  # copies of a value in an expression's result
JOINED_CHARACTERS = 1024**2  # the result of `join` may always have this size
_RESULTS: Mapping[str, ValueType] = {
    **dict.fromkeys(("abs", "ceil", "floor", "length"), ValueType.NUMBER),
    **dict.fromkeys(("contains", "starts_with", "ends_with"), ValueType.BOOLEAN),
    **dict.fromkeys(("join", "to_string", "type"), ValueType.TEXT),
    **dict.fromkeys(("keys", "values", "map", "sort", "sort_by", "to_array"), ValueType.LIST),
    "merge": ValueType.OBJECT,
}
_NAMES: Mapping[ValueType, str] = {
    ValueType.NULL: "null",
    ValueType.BOOLEAN: "boolean",
    ValueType.NUMBER: "number",
    ValueType.TEXT: "string",
    ValueType.LIST: "array",
    ValueType.OBJECT: "object",
}


def count_copies(node: Node) -> int:
    """The maximum number of copies of one part of its value in the result of `node`."""
    kind, children = node["type"], node["children"]
    if kind in _CHAINS:
        return prod(count_copies(it) for it in children)
    if kind in _PROJECTIONS:
        return prod(count_copies(it) for it in children[:2])
    if kind in _CHOICES:
        return max(count_copies(it) for it in children)
    if kind in ("multi_select_list", "multi_select_dict"):
        return _most_overlapping(children)
    if kind == "function_expression" and node["value"] not in _SMALL_FUNCTIONS:
        return _count_function_copies(node["value"], children)
    return count_copies(children[0]) if kind in ("expref", "flatten", "key_val_pair") else 1


def _count_function_copies(name: str, arguments: Sequence[Node]) -> int:
    if name == "map":
        return prod(count_copies(it) for it in arguments)
    copies = _most_overlapping([it for it in arguments if it["type"] != "expref"])
    return copies * _ESCAPES if name == "to_string" else copies


def _most_overlapping(nodes: Sequence[Node]) -> int:
    """The maximum number of copies of one part in the results of all `nodes` together."""
    parts = [(_path(it), count_copies(it)) for it in nodes if not _is_small(it)]
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
    """The path of the part that `node` reads, or of a part that contains it."""
    return _parts(node)[0]


def _parts(node: Node) -> tuple[Path, bool]:
    """The path, and True if the node does nothing else."""
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


class GraphExpressionError(HostelryError):
    """An expression is invalid, does not fit its values, or failed."""


@dataclass(frozen=True, slots=True)
class GraphExpression:
    """A parsed expression, and the names that it reads from its scope, in order.

    `copies` is the maximum number of copies of one part of its input in its value.
    """

    text: str
    references: tuple[str, ...]
    parsed: Any = field(repr=False, compare=False)
    copies: int = 1

    @property
    def is_reference(self) -> bool:
        """True if it is only the name of one step, or `input`."""
        return self.references == (self.text,)

    def value(self, scope: Any) -> Any:
        """The value in a scope. Raises GraphExpressionError."""
        if self.is_reference:
            return scope[self.text]
        try:
            return self.parsed.search(scope, jmespath.Options(custom_functions=_BoundedFunctions()))
        except (JMESPathError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = " ".join(str(error).split())[:300]
            raise GraphExpressionError(f"the expression {self.text[:80]} fails: {reason}") from None


def read_expression(text: str, *, of_answer: bool = False) -> GraphExpression:
    """Parse an expression. Raises GraphExpressionError.

    With `of_answer` it is evaluated on a step's answer, whose fields are unknown.
    """
    if len(text) > MAX_CHARACTERS:
        raise GraphExpressionError(f"it has {len(text)} characters; at most {MAX_CHARACTERS}")
    try:
        with warnings.catch_warnings():
            # JMESPath reads a literal that is not JSON as a text, so `0.8x` would pass.
            warnings.simplefilter("error", PendingDeprecationWarning)
            parsed = jmespath.compile(text)
    except (JMESPathError, RecursionError, ValueError, PendingDeprecationWarning) as error:
        reason = " ".join(str(error).split())[:300]
        raise GraphExpressionError(f"{text[:80]!r} is no JMESPath expression: {reason}") from None
    copies = _check_node_copies(parsed.parsed)
    if of_answer:
        _Typing({}, ValueType.ANY).infer(parsed.parsed)
        return GraphExpression(text.strip(), (), parsed, copies)
    references: list[str] = []

    def note(name: str) -> ValueType:
        references.append(name)
        return ValueType.ANY

    _Typing(note, None).infer(parsed.parsed)
    return GraphExpression(text.strip(), tuple(dict.fromkeys(references)), parsed, copies)


def _check_node_copies(node: Node) -> int:
    try:
        copies = count_copies(node)
    except RecursionError:
        raise GraphExpressionError("it is nested too deep") from None
    check_copies(copies)
    return copies


def check_copies(copies: int) -> None:
    """Raise GraphExpressionError if a value may have too many copies of a part of another."""
    if copies > MAX_COPIES:
        raise GraphExpressionError(
            f"it can repeat a value {copies:.6g} times; at most {MAX_COPIES}"
        )


class _BoundedFunctions(Functions):  # type: ignore[misc] # jmespath has no types
    """JMESPath's functions, with a limit for `join`, which can multiply the sizes of two values."""

    @signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, glue: str, texts: list[str]) -> str:
        own = sum(len(it) for it in texts)
        size = len(glue) * len(texts) + own
        most = max(JOINED_CHARACTERS, MAX_COPIES * (len(glue) + own))
        if size > most:
            raise ValueError(f"join() would make {size} characters; at most {most}")
        return glue.join(texts)


def infer_type(expression: GraphExpression, types: Mapping[str, ValueType]) -> ValueType:
    """The type of the value, from the types of its inputs. Raises GraphExpressionError."""
    return _Typing(types.__getitem__, None).infer(expression.parsed.parsed)


class _Typing:
    """Infers the types of one expression's nodes.

    `names` gives the type of each name of the scope. `current` is None at the scope itself.
    """

    def __init__(
        self, names: Callable[[str], ValueType] | Mapping[str, ValueType], current: ValueType | None
    ) -> None:
        self._names = names
        self._current = current

    def infer(self, node: Node) -> ValueType:
        found: Callable[[Node], ValueType] | None = getattr(self, f"_infer_{node['type']}", None)
        if found is None:
            raise GraphExpressionError(f"{node['type']} is not known here")
        try:
            return found(node)
        except RecursionError:
            raise GraphExpressionError("it is nested too deep") from None

    def _at(self, current: ValueType) -> "_Typing":
        return _Typing(self._names, current)

    def _fits(self, node: Node, type: ValueType, wanted: ValueType, what: str) -> None:
        if type not in (ValueType.ANY, wanted):
            raise GraphExpressionError(f"{what} needs {wanted.value}, and there is {type.value}")

    def _infer_field(self, node: Node) -> ValueType:
        if self._current is None:
            return self._names(node["value"]) if callable(self._names) else ValueType.ANY
        self._fits(node, self._current, ValueType.OBJECT, f"the field {node['value']}")
        return ValueType.ANY

    def _infer_identity(self, node: Node) -> ValueType:
        if self._current is None:
            raise GraphExpressionError("it stands for every step; name `input` or a step")
        return self._current

    _infer_current = _infer_identity

    def _infer_literal(self, node: Node) -> ValueType:
        return find_type(node["value"])

    def _infer_subexpression(self, node: Node) -> ValueType:
        typing = self
        found = ValueType.ANY
        for child in node["children"]:
            found = typing.infer(child)
            typing = self._at(found)
        return found

    _infer_pipe = _infer_index_expression = _infer_subexpression

    def _infer_index(self, node: Node) -> ValueType:
        self._fits(node, self._current or ValueType.OBJECT, ValueType.LIST, "an index")
        return ValueType.ANY

    def _infer_slice(self, node: Node) -> ValueType:
        self._infer_index(node)
        return ValueType.LIST

    def _infer_projection(self, node: Node) -> ValueType:
        left, *rest = node["children"]
        self._fits(node, self.infer(left), ValueType.LIST, "[*]")
        for child in rest:
            self._at(ValueType.ANY).infer(child)
        return ValueType.LIST

    def _infer_filter_projection(self, node: Node) -> ValueType:
        return self._infer_projection(node)

    def _infer_flatten(self, node: Node) -> ValueType:
        self._fits(node, self.infer(node["children"][0]), ValueType.LIST, "[]")
        return ValueType.LIST

    def _infer_value_projection(self, node: Node) -> ValueType:
        left, right = node["children"]
        if self._current is None and left["type"] == "identity":
            raise GraphExpressionError("* stands for every step; name `input` or a step")
        self._fits(node, self.infer(left), ValueType.OBJECT, "*")
        self._at(ValueType.ANY).infer(right)
        return ValueType.LIST

    def _infer_multi_select_list(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.infer(child)
        return ValueType.LIST

    def _infer_multi_select_dict(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.infer(child["children"][0])
        return ValueType.OBJECT

    def _infer_or_expression(self, node: Node) -> ValueType:
        return common_type([self.infer(child) for child in node["children"]])

    _infer_and_expression = _infer_or_expression

    def _infer_comparator(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.infer(child)
        return ValueType.BOOLEAN

    _infer_not_expression = _infer_comparator

    def _infer_expref(self, node: Node) -> ValueType:
        return self._at(ValueType.ANY).infer(node["children"][0])

    def _infer_function_expression(self, node: Node) -> ValueType:
        name, arguments = node["value"], node["children"]
        known = Functions.FUNCTION_TABLE.get(name)
        if known is None:
            raise GraphExpressionError(f"there is no function {name}()")
        signature = known["signature"]
        is_variadic = bool(signature) and signature[-1].get("variadic", False)
        if len(arguments) != len(signature) and not (
            is_variadic and len(arguments) >= len(signature)
        ):
            raise GraphExpressionError(
                f"{name}() takes {len(signature)} arguments, and {len(arguments)} are given"
            )
        for position, argument in enumerate(arguments):
            wanted = signature[min(position, len(signature) - 1)]["types"]
            self._check_argument(name, argument, wanted)
        return _RESULTS.get(name, ValueType.ANY)

    def _check_argument(self, function: str, argument: Node, wanted: list[str]) -> None:
        found = self.infer(argument)
        if ("expref" in wanted) != (argument["type"] == "expref"):
            raise GraphExpressionError(
                f"{function}() needs {'an' if 'expref' in wanted else 'no'} &"
            )
        if argument["type"] == "expref" or found is ValueType.ANY or not wanted:
            return
        name = _NAMES.get(found, "bytes")
        if name not in {kind.partition("-")[0] for kind in wanted}:
            raise GraphExpressionError(
                f"{function}() takes {' or '.join(wanted)}, and there is {found.value}"
            )
