"""Conditions on values, joined by && and ||, in JSON patterns and field patterns.

condition   := conjunction ("||" conjunction)*
conjunction := primary ("&&" primary)*
primary     := "(" condition ")" | SELECTOR test
test        := ("=" | "!=" | "<" | "<=" | ">" | ">=") VALUE
| "IS" ("NULL" | "TRUE" | "FALSE") | "NOT" "EXISTS"
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""\s+|(?P<token>"(?:[^"\\]|\\.)*"|&&|\|\||!=|<=|>=|[=<>()]|[^\s"=!<>()&|]+)"""
)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS: Mapping[str, Any] = {"NULL": None, "TRUE": True, "FALSE": False}

Test = Callable[[Any], bool]
Condition = Callable[[Any], bool]
Select = Callable[[Any], Sequence[Any]]
"""The values that a selector finds in an event; none where the event lacks them."""


def parse_condition(
    text: str, selector_of: Callable[[str], Select], check: Callable[[], None] = lambda: None
) -> Condition:
    """Parse a condition. Raises ValueError if `text` is not a valid condition.

    It calls `check` before each test of an event's values, which may raise.
    """
    parser = _Parser(tokenize(text), selector_of, check)
    condition = parser.condition(0)
    if parser.peek() is not None:
        raise ValueError(f"{parser.peek()!r} is not expected")
    return condition


def tokenize(text: str) -> list[str]:
    """Split a condition into tokens. Raises ValueError for an invalid token."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at]!r} is not expected")
        if match["token"] is not None:
            tokens.append(match["token"])
        at = match.end()
    return tokens


class _Parser:
    """Reads a condition from tokens."""

    def __init__(
        self,
        tokens: Sequence[str],
        selector_of: Callable[[str], Select],
        check: Callable[[], None],
    ) -> None:
        self._tokens = tokens
        self._check = check
        self._at = 0
        self._selector_of = selector_of

    def peek(self) -> str | None:
        """The next token. None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self.peek()
        if token is None:
            raise ValueError("it ends too early")
        self._at += 1
        return token

    def condition(self, depth: int) -> Condition:
        """Parse one condition. Raises ValueError."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        parts = [self._conjunction(depth)]
        while self.peek() == "||":
            self._next()
            parts.append(self._conjunction(depth))
        return lambda event: any(part(event) for part in parts)

    def _conjunction(self, depth: int) -> Condition:
        parts = [self._primary(depth)]
        while self.peek() == "&&":
            self._next()
            parts.append(self._primary(depth))
        return lambda event: all(part(event) for part in parts)

    def _primary(self, depth: int) -> Condition:
        token = self._next()
        if token == "(":
            inner = self.condition(depth + 1)
            if self._next() != ")":
                raise ValueError("a parenthesis is not closed")
            return inner
        select = self._selector_of(token)
        if (self.peek() or "").upper() == "NOT":
            self._next()
            if self._next().upper() != "EXISTS":
                raise ValueError("NOT is followed by EXISTS")
            return lambda event: not select(event)
        test, check = self._test(), self._check

        def holds(event: Any) -> bool:
            check()
            return any(test(value) for value in select(event))

        return holds

    def _test(self) -> Test:
        sign = self._next()
        if sign.upper() == "IS":
            name = self._next().upper()
            if name not in _CONSTANTS:
                raise ValueError("IS is followed by NULL, TRUE or FALSE")
            return lambda value: value is _CONSTANTS[name]
        if sign not in _COMPARISONS:
            raise ValueError(f"{sign!r} is no comparison")
        return comparison(sign, self._next())


def comparison(sign: str, operand: str) -> Test:
    """Build the test ``value SIGN operand``. Raises ValueError for an order of texts."""
    compare = _COMPARISONS[sign]
    if _NUMBER.fullmatch(operand):
        number = float(operand)
        return lambda value: (found := parse_number(value)) is not None and compare(found, number)
    if sign not in ("=", "!="):
        raise ValueError(f"{sign} compares numbers, and {operand!r} is none")
    is_quoted = operand.startswith('"')
    matches = wildcard(unquote(operand))
    equal = sign == "="

    def holds(value: Any) -> bool:
        text = value if isinstance(value, str) else _plain(value, is_quoted)
        return text is not None and matches(text) is equal

    return holds


def parse_number(value: Any) -> float | None:
    """Return a number, or the number in a text, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e308 else None
    if isinstance(value, str) and len(value) <= 64 and _NUMBER.fullmatch(value):
        return float(value)
    return None


def wildcard(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches `pattern`, in which ``*`` stands for any characters."""
    first, *rest = pattern.split("*")
    if not rest:
        return lambda text: text == first

    def matches(text: str) -> bool:
        if not text.startswith(first):
            return False
        at = len(first)
        for part in rest[:-1]:
            found = text.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return text.endswith(rest[-1]) and len(text) - len(rest[-1]) >= at

    return matches


def unquote(token: str) -> str:
    """Remove a token's quotes and backslashes."""
    if not token.startswith('"'):
        return token
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _plain(value: Any, is_quoted: bool) -> str | None:
    """A number as text, for an operand without quotes such as ``4*``, else None."""
    if is_quoted or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{value}" if abs(value) < 1e308 else None
