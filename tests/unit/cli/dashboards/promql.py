"""A strict reader of the part of PromQL that our expressions use.

Source: Prometheus documentation, pages "Querying basics", "Operators" and "Functions".
"""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"\s*(?:(?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<number>\d+(?:\.\d+)?(?![a-z0-9.]))|"
    r'(?P<span>\d+[smhd])|(?P<text>"[^"]*")|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/<>=(){}\[\],]))'
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk"}
OF_RANGES = {"rate", "increase", "min_over_time", "max_over_time"}
OF_INSTANTS = {"absent", "histogram_quantile"}
OPERATORS = {"+", "-", "*", "/", ">", "<", ">=", "<=", "==", "!=", "and", "or", "unless"}


@dataclass
class Reader:
    """Parses one expression. Afterwards `metrics` and `labels` are the names in it."""

    text: str
    metrics: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    _tokens: list[tuple[str, str]] = field(default_factory=list)

    def read(self) -> "Reader":
        """Parse the expression. Raises AssertionError if it is invalid."""
        at = 0
        while at < len(self.text.rstrip()):
            found = TOKEN.match(self.text, at)
            assert found, f"{self.text[at:]!r} is no PromQL"
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind]))
            at = found.end()
        self._expression()
        assert not self._tokens, f"left over: {self._tokens}"
        return self

    def _next(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def _take(self, *wanted: str, kind: str | None = None) -> str:
        assert self._tokens, f"{self.text!r} ends too early"
        found, value = self._tokens.pop(0)
        assert not wanted or value in wanted, f"{value!r} in {self.text!r}, not {wanted}"
        assert kind in (None, found), f"{value!r} in {self.text!r} is no {kind}"
        return value

    def _expression(self) -> None:
        self._operand()
        while self._next() in OPERATORS:
            self._take()
            self._operand()

    def _operand(self) -> None:
        kind, value = self._tokens[0] if self._tokens else ("", "")
        if kind == "number":
            self._take()
        elif value == "(":
            self._take("(")
            self._expression()
            self._take(")")
        elif value in AGGREGATIONS:
            self._take()
            if self._next() == "by":
                self._take("by")
                self._list()
            self._call(is_range=False, with_number=value == "topk")
        elif value in OF_RANGES | OF_INSTANTS:
            self._take()
            self._call(value in OF_RANGES, with_number=value == "histogram_quantile")
        else:
            self._selector(is_range=False)

    def _call(self, is_range: bool, with_number: bool) -> None:
        self._take("(")
        if with_number:
            self._take(kind="number")
            self._take(",")
        if is_range:
            self._selector(is_range=True)
        else:
            self._expression()
        self._take(")")

    def _list(self) -> None:
        self._take("(")
        self.labels.add(self._take(kind="word"))
        while self._next() == ",":
            self._take(",")
            self.labels.add(self._take(kind="word"))
        self._take(")")

    def _selector(self, *, is_range: bool) -> None:
        self.metrics.add(self._take(kind="word"))
        if self._next() == "{":
            self._take("{")
            while self._next() != "}":
                self.labels.add(self._take(kind="word"))
                self._take("=", "!=", "=~", "!~")
                self._take(kind="text")
                assert self._next() in ",}", f"no comma in {self.text!r}"
                if self._next() == ",":
                    self._take(",")
            self._take("}")
        if is_range:
            self._take("[")
            self._take(kind="span")
            self._take("]")
        if self._next() == "offset":
            self._take("offset")
            self._take(kind="span")
