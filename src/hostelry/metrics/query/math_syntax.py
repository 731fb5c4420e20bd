"""Parses metric math into a tree, and describes errors in words.

Source: CloudWatch user guide, "Using math expressions with CloudWatch metrics".
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

MAX_CHARACTERS = 2048
MAX_DEPTH = 40
MAX_OPERATORS = 400

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
    r"|(?P<sign><=|>=|==|!=|&&|\|\||[-+*/^<>()\[\],]))"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("OR",),
    ("AND",),
    ("<", ">", "<=", ">=", "==", "!="),
    ("+", "-"),
    ("*", "/"),
)
_SAME = {"||": "OR", "&&": "AND"}


class ExpressionError(ValueError):
    """What is wrong with an expression, in words for its author."""


class Number(msgspec.Struct, frozen=True):
    """A number as it stands there."""

    value: float


class Text(msgspec.Struct, frozen=True):
    """A quoted text, without its quotes."""

    value: str


class Name(msgspec.Struct, frozen=True):
    """The id of a query, or a function's own word as REPEAT."""

    value: str


class Negative(msgspec.Struct, frozen=True):
    """Minus its operand."""

    of: "Node"


class Binary(msgspec.Struct, frozen=True):
    """An operator between two operands."""

    sign: str
    left: "Node"
    right: "Node"


class Listed(msgspec.Struct, frozen=True):
    """Operands in brackets."""

    items: tuple["Node", ...]


class Apply(msgspec.Struct, frozen=True):
    """A function and its arguments."""

    function: str
    arguments: tuple["Node", ...]


Node = Number | Text | Name | Negative | Binary | Listed | Apply


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str


@lru_cache(maxsize=1024)
def parse(expression: str) -> Node:
    """Parse an expression into a tree. Raises ExpressionError."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(
            f"It has {len(expression)} characters; an expression has at most {MAX_CHARACTERS}."
        )
    reader = _Reader(list(_tokens(expression)))
    node = reader.operation(0, 0)
    reader.expect_end()
    return node


def names_in(node: Node) -> Iterator[str]:
    """Every name that a tree uses."""
    waiting: list[Node] = [node]
    while waiting:
        it = waiting.pop()
        match it:
            case Name(value):
                yield value
            case Negative(of):
                waiting.append(of)
            case Binary(_, left, right):
                waiting += (left, right)
            case Listed(items) | Apply(_, items):
                waiting += items


def functions_in(node: Node) -> Iterator[str]:
    """Every function that a tree applies."""
    waiting: list[Node] = [node]
    while waiting:
        it = waiting.pop()
        match it:
            case Apply(function, arguments):
                yield function
                waiting += arguments
            case Negative(of):
                waiting.append(of)
            case Binary(_, left, right):
                waiting += (left, right)
            case Listed(items):
                waiting += items


def _tokens(expression: str) -> Iterator[_Token]:
    at = 0
    end = len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None:
            raise ExpressionError(f"Unexpected '{expression[at : at + 20].strip()}' at {at + 1}.")
        at = found.end()
        kind = str(found.lastgroup)
        text = found[kind]
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        elif kind == "word" and text in ("AND", "OR"):
            kind = "sign"
        yield _Token(kind, _SAME.get(text, text) if kind == "sign" else text)


class _Reader:
    """A parser by recursive descent. Each level of depth is one operand inside another."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._num_operators = 0

    def operation(self, level: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"It is nested deeper than {MAX_DEPTH} levels.")
        if level == len(_LEVELS):
            return self._read_signed(depth)
        node = self.operation(level + 1, depth)
        while (sign := self._sign()) in _LEVELS[level]:
            self._at += 1
            self._num_operators += 1
            if self._num_operators > MAX_OPERATORS:
                raise ExpressionError(f"It has more than {MAX_OPERATORS} operators.")
            node = Binary(str(sign), node, self.operation(level + 1, depth))
        return node

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise ExpressionError(f"Unexpected '{self._tokens[self._at].text:.50}'.")

    def _read_signed(self, depth: int) -> Node:
        num_minus = 0
        while self._sign() in ("-", "+"):
            num_minus += self._sign() == "-"
            self._at += 1
        node = self._power(depth)
        return Negative(node) if num_minus % 2 else node

    def _power(self, depth: int) -> Node:
        base = self._operand(depth)
        if self._sign() != "^":
            return base
        self._at += 1
        if depth >= MAX_DEPTH:
            raise ExpressionError(f"It is nested deeper than {MAX_DEPTH} levels.")
        return Binary("^", base, self._read_signed(depth + 1))

    def _operand(self, depth: int) -> Node:
        token = self._next()
        if token.kind == "number":
            return Number(float(token.text))
        if token.kind == "text":
            return Text(token.text)
        if token.kind == "word":
            if self._sign() != "(":
                return Name(token.text)
            self._at += 1
            return Apply(token.text, self._operands(")", depth))
        if token.text == "(":
            node = self.operation(0, depth + 1)
            self._expect(")")
            return node
        if token.text == "[":
            return Listed(self._operands("]", depth))
        raise ExpressionError(f"Unexpected '{token.text}'.")

    def _operands(self, closing: str, depth: int) -> tuple[Node, ...]:
        items: list[Node] = []
        if self._sign() != closing:
            items.append(self.operation(0, depth + 1))
            while self._sign() == ",":
                self._at += 1
                items.append(self.operation(0, depth + 1))
        self._expect(closing)
        return tuple(items)

    def _sign(self) -> str | None:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != "sign":
            return None
        return self._tokens[self._at].text

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise ExpressionError("It ends where a value is expected.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, sign: str) -> None:
        token = self._next() if self._at < len(self._tokens) else None
        if token is None or token.kind != "sign" or token.text != sign:
            found = f"'{token.text:.50}'" if token else "the end"
            raise ExpressionError(f"Expected '{sign}', found {found}.")
