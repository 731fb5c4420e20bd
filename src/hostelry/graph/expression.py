"""JMESPath expressions: checked before a call, evaluated in it. Pure.

The scope of an expression is an object: `input`, the request, and each step by its name. JMESPath
gives null for a field of a text and fails on a wrong function only once it is reached; here both
are faults of the document, as far as types are known.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions, signature

from hostelry.base.errors import HostelryError
from hostelry.graph.copies import num_copies
from hostelry.graph.value_types import ValueType, common_type, type_of_value

MAX_CHARACTERS = 2000
MAX_COPIES = 32  # of a value that an expression reads, in its result
JOINED_CHARACTERS = 1024**2  # that `join` may make of any values
Node = Mapping[str, Any]

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


class GraphExpressionError(HostelryError):
    """An expression that cannot be read, cannot fit its values, or failed on them."""


@dataclass(frozen=True, slots=True)
class GraphExpression:
    """A parsed expression, and the names of its scope that it reads, in their order.

    `copies` is how often its value can have one part of what it reads.
    """

    text: str
    references: tuple[str, ...]
    parsed: Any = field(repr=False, compare=False)
    copies: int = 1

    @property
    def is_reference(self) -> bool:
        """Whether it is the name of one step, or `input`, and nothing else."""
        return self.references == (self.text,)

    def value(self, scope: Any) -> Any:
        """Its value; raises GraphExpressionError."""
        if self.is_reference:
            return scope[self.text]
        try:
            return self.parsed.search(scope, jmespath.Options(custom_functions=_BoundedFunctions()))
        except (JMESPathError, TypeError, ValueError, OverflowError, RecursionError) as error:
            reason = " ".join(str(error).split())[:300]
            raise GraphExpressionError(f"the expression {self.text[:80]} fails: {reason}") from None


def read_expression(text: str, *, of_answer: bool = False) -> GraphExpression:
    """The expression of `text`; raises GraphExpressionError.

    One `of_answer` is evaluated on a step's answer, whose fields are not known.
    """
    if len(text) > MAX_CHARACTERS:
        raise GraphExpressionError(f"it has {len(text)} characters; at most {MAX_CHARACTERS}")
    try:
        with warnings.catch_warnings():
            # A literal that is no JSON is a text by an old rule: `0.8x` would be one, unseen.
            warnings.simplefilter("error", PendingDeprecationWarning)
            parsed = jmespath.compile(text)
    except (JMESPathError, RecursionError, ValueError, PendingDeprecationWarning) as error:
        reason = " ".join(str(error).split())[:300]
        raise GraphExpressionError(f"{text[:80]!r} is no JMESPath expression: {reason}") from None
    copies = _checked_copies(parsed.parsed)
    if of_answer:
        _Typing({}, ValueType.ANY).of(parsed.parsed)
        return GraphExpression(text.strip(), (), parsed, copies)
    references: list[str] = []

    def note(name: str) -> ValueType:
        references.append(name)
        return ValueType.ANY

    _Typing(note, None).of(parsed.parsed)
    return GraphExpression(text.strip(), tuple(dict.fromkeys(references)), parsed, copies)


def _checked_copies(node: Node) -> int:
    try:
        copies = num_copies(node)
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
    """JMESPath's functions; `join` cannot make the product of two values' sizes."""

    @signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, glue: str, texts: list[str]) -> str:
        own = sum(len(it) for it in texts)
        size = len(glue) * len(texts) + own
        most = max(JOINED_CHARACTERS, MAX_COPIES * (len(glue) + own))
        if size > most:
            raise ValueError(f"join() would make {size} characters; at most {most}")
        return glue.join(texts)


def type_of_expression(expression: GraphExpression, types: Mapping[str, ValueType]) -> ValueType:
    """The type of its value, of the types of what it reads; raises GraphExpressionError."""
    return _Typing(types.__getitem__, None).of(expression.parsed.parsed)


class _Typing:
    """Types of the nodes of one expression.

    `names` is the scope's type by name; `current` is None at the scope itself.
    """

    def __init__(
        self, names: Callable[[str], ValueType] | Mapping[str, ValueType], current: ValueType | None
    ) -> None:
        self._names = names
        self._current = current

    def of(self, node: Node) -> ValueType:
        found: Callable[[Node], ValueType] | None = getattr(self, f"_of_{node['type']}", None)
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

    def _of_field(self, node: Node) -> ValueType:
        if self._current is None:
            return self._names(node["value"]) if callable(self._names) else ValueType.ANY
        self._fits(node, self._current, ValueType.OBJECT, f"the field {node['value']}")
        return ValueType.ANY

    def _of_identity(self, node: Node) -> ValueType:
        if self._current is None:
            raise GraphExpressionError("it stands for every step; name `input` or a step")
        return self._current

    _of_current = _of_identity

    def _of_literal(self, node: Node) -> ValueType:
        return type_of_value(node["value"])

    def _of_subexpression(self, node: Node) -> ValueType:
        typing = self
        found = ValueType.ANY
        for child in node["children"]:
            found = typing.of(child)
            typing = self._at(found)
        return found

    _of_pipe = _of_index_expression = _of_subexpression

    def _of_index(self, node: Node) -> ValueType:
        self._fits(node, self._current or ValueType.OBJECT, ValueType.LIST, "an index")
        return ValueType.ANY

    def _of_slice(self, node: Node) -> ValueType:
        self._of_index(node)
        return ValueType.LIST

    def _of_projection(self, node: Node) -> ValueType:
        left, *rest = node["children"]
        self._fits(node, self.of(left), ValueType.LIST, "[*]")
        for child in rest:
            self._at(ValueType.ANY).of(child)
        return ValueType.LIST

    def _of_filter_projection(self, node: Node) -> ValueType:
        return self._of_projection(node)

    def _of_flatten(self, node: Node) -> ValueType:
        self._fits(node, self.of(node["children"][0]), ValueType.LIST, "[]")
        return ValueType.LIST

    def _of_value_projection(self, node: Node) -> ValueType:
        left, right = node["children"]
        if self._current is None and left["type"] == "identity":
            raise GraphExpressionError("* stands for every step; name `input` or a step")
        self._fits(node, self.of(left), ValueType.OBJECT, "*")
        self._at(ValueType.ANY).of(right)
        return ValueType.LIST

    def _of_multi_select_list(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.of(child)
        return ValueType.LIST

    def _of_multi_select_dict(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.of(child["children"][0])
        return ValueType.OBJECT

    def _of_or_expression(self, node: Node) -> ValueType:
        return common_type([self.of(child) for child in node["children"]])

    _of_and_expression = _of_or_expression

    def _of_comparator(self, node: Node) -> ValueType:
        for child in node["children"]:
            self.of(child)
        return ValueType.BOOLEAN

    _of_not_expression = _of_comparator

    def _of_expref(self, node: Node) -> ValueType:
        return self._at(ValueType.ANY).of(node["children"][0])

    def _of_function_expression(self, node: Node) -> ValueType:
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
        found = self.of(argument)
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
