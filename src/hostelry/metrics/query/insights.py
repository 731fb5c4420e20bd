"""Metrics Insights: a query in SQL's form, and the series that it selects."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from hostelry.domain.metric import Metric
from hostelry.metrics.query.math_functions import REDUCERS
from hostelry.metrics.query.math_syntax import MAX_CHARACTERS, ExpressionError
from hostelry.metrics.query.math_values import TimeSeries

# Metrics Insights: parses a query in SQL's form, and describes errors in words.
#
#     SELECT FUNCTION(metric) FROM namespace | SCHEMA(namespace [, label ...])
#     [WHERE label = | != 'value' [AND ...]] [GROUP BY label [, ...]]
#     [ORDER BY FUNCTION() [ASC | DESC]] [LIMIT number]
#
# Source: CloudWatch user guide, "Query components and syntax in CloudWatch Metrics Insights".


MAX_SERIES = 500
FUNCTIONS = ("AVG", "COUNT", "MAX", "MIN", "SUM")
ACCOUNT = "AWS.AccountId"
KEYWORDS = (
    *("SELECT", "FROM", "SCHEMA", "WHERE", "AND", "GROUP", "ORDER", "BY", "LIMIT", "ASC", "DESC"),
)
NOT_SERVED = ("OR", "NOT", "IN", "LIKE", "HAVING", "JOIN", "UNION", "BETWEEN", "OFFSET")
_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+(?:\.\w+)*)"
    r"|(?P<quoted>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<text>'(?:\\.|[^'\\])*')"
    r"|(?P<sign>!=|[=(),*]))",
    re.DOTALL,
)
_SELECT = re.compile(r"\s*select(?:\s|$)", re.IGNORECASE)


class Condition(msgspec.Struct, frozen=True):
    """Requires a label's value or, without `is_equal`, another value.

    Instead of a value, None stands for the caller's account.
    """

    label: str
    value: str | None
    is_equal: bool = True


class Insights(msgspec.Struct, frozen=True, kw_only=True):
    """A query. Without SCHEMA it has no `labels`, and selects metrics of all dimensions."""

    function: str
    name: str
    namespace: str
    labels: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    group_by: tuple[str, ...] = ()
    order_by: str | None = None
    is_descending: bool = False
    limit: int | None = None


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The token as a keyword. Empty if it is quoted."""
        return self.text.upper() if self.kind == "word" else ""


def is_insights(expression: str) -> bool:
    """True if an expression is a query and not metric math."""
    return _SELECT.match(expression) is not None


@lru_cache(maxsize=1024)
def parse_insights(text: str) -> Insights:
    """Parse a query. Raises ExpressionError."""
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"It has {len(text)} characters; a query has at most {MAX_CHARACTERS}."
        )
    return _Reader(list(_tokens(text)), len(text.rstrip())).query()


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            rest = text[at:].lstrip()
            place = end - len(rest.rstrip()) + 1
            raise ExpressionError(f"Unexpected '{rest[:20]}' at {place}.")
        at = found.end()
        kind = str(found.lastgroup)
        own = found[kind]
        if kind in ("quoted", "text"):
            own = re.sub(r"\\(.)", r"\1", own[1:-1], flags=re.DOTALL)
        yield _Token(kind, own, found.start(kind) + 1)


class _Reader:
    """Reads the clauses in their order."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = _Token("end", "the end of the query", end + 1)

    def query(self) -> Insights:
        self._keyword("SELECT")
        function = self._function()
        name = self._in_parentheses()
        self._keyword("FROM")
        namespace, labels = self._source()
        conditions = tuple(self._conditions()) if self._skip("WHERE") else ()
        group_by: tuple[str, ...] = ()
        if self._skip("GROUP"):
            self._keyword("BY")
            group_by = self._labels("GROUP BY")
        order_by, is_descending = self._order() if self._skip("ORDER") else (None, False)
        limit = self._limit() if self._skip("LIMIT") else None
        self._expect_end()
        return Insights(
            function=function,
            name=name,
            namespace=namespace,
            labels=labels,
            conditions=conditions,
            group_by=group_by,
            order_by=order_by,
            is_descending=is_descending,
            limit=limit,
        )

    def _function(self) -> str:
        token = self._next()
        if token.word not in FUNCTIONS:
            raise self._build_error(token, f"one of the functions {', '.join(FUNCTIONS)}")
        return token.word

    def _in_parentheses(self) -> str:
        self._sign("(")
        name = self._identifier("the name of a metric")
        self._sign(")")
        return name

    def _source(self) -> tuple[str, tuple[str, ...] | None]:
        if not self._skip("SCHEMA"):
            return self._identifier("a namespace or SCHEMA(...)"), None
        self._sign("(")
        namespace = self._identifier("a namespace")
        labels = self._labels("SCHEMA") if self._skip_sign(",") else ()
        self._sign(")")
        return namespace, labels

    def _labels(self, clause: str) -> tuple[str, ...]:
        found: list[str] = []
        while True:
            token = self._peek()
            label = self._label()
            if label in found:
                raise ExpressionError(f"{clause} names '{label:.50}' twice, at {token.at}.")
            found.append(label)
            if not self._skip_sign(","):
                return tuple(found)

    def _conditions(self) -> Iterator[Condition]:
        while True:
            label = self._label()
            sign = self._next()
            if (sign.kind, sign.text) not in (("sign", "="), ("sign", "!=")):
                raise self._build_error(sign, "= or !=")
            yield Condition(label, self._value(label), sign.text == "=")
            if not self._skip("AND"):
                return

    def _value(self, label: str) -> str | None:
        token = self._next()
        if token.kind == "text":
            return token.text
        if label == ACCOUNT and token.kind == "word":
            if token.word == "CURRENT_ACCOUNT_ID":
                self._sign("(")
                self._sign(")")
                return None
            if token.text.isdecimal():
                return token.text
        raise self._build_error(token, "a value in single quotation marks")

    def _order(self) -> tuple[str, bool]:
        self._keyword("BY")
        function = self._function()
        self._sign("(")
        self._sign(")")
        if self._skip("DESC"):
            return function, True
        self._skip("ASC")
        return function, False

    def _limit(self) -> int:
        token = self._next()
        if token.kind != "word" or not re.fullmatch(r"[0-9]{1,9}", token.text):
            raise self._build_error(token, f"a whole number from 1 to {MAX_SERIES}")
        limit = int(token.text)
        if not 1 <= limit <= MAX_SERIES:
            raise ExpressionError(f"LIMIT is 1 to {MAX_SERIES}; it is {limit}, at {token.at}.")
        return limit

    def _label(self) -> str:
        token = self._peek()
        if token.kind == "word" and token.text == ACCOUNT:
            return self._next().text
        if token.kind == "word" and token.text.startswith("tag."):
            raise ExpressionError(
                f"'{token.text:.50}' at {token.at}: metrics have no tags of resources here; use"
                " dimensions."
            )
        return self._identifier("the name of a dimension")

    def _identifier(self, what: str) -> str:
        token = self._next()
        if token.kind == "quoted" and token.text:
            return token.text
        if token.kind != "word" or token.word in KEYWORDS:
            raise self._build_error(token, what)
        if not token.text.isascii() or "." in token.text:
            raise ExpressionError(
                f"'{token.text:.50}' at {token.at} must be in double quotation marks, as it has"
                " other characters than letters, digits and _."
            )
        return token.text

    def _keyword(self, word: str) -> None:
        token = self._next()
        if token.word != word:
            raise self._build_error(token, word)

    def _sign(self, sign: str) -> None:
        token = self._next()
        if (token.kind, token.text) != ("sign", sign):
            raise self._build_error(token, f"'{sign}'")

    def _skip(self, word: str) -> bool:
        found = self._peek().word == word
        self._at += found
        return found

    def _skip_sign(self, sign: str) -> bool:
        found = (self._peek().kind, self._peek().text) == ("sign", sign)
        self._at += found
        return found

    def _expect_end(self) -> None:
        token = self._peek()
        if token.kind != "end":
            raise self._build_error(token, "the end, or the next clause in its order")

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    def _next(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    @staticmethod
    def _build_error(token: _Token, expected: str) -> ExpressionError:
        found = token.text if token.kind == "end" else f"'{token.text:.50}'"
        advice = ""
        if token.word in NOT_SERVED:
            advice = f" Metrics Insights has no {token.word}: conditions are joined by AND."
        return ExpressionError(f"Expected {expected}, found {found} at {token.at}.{advice}")


def wanted_dimensions(query: Insights) -> Mapping[str, str | None] | None:
    """The dimensions to ask a store for: None where any will do."""
    equal = {it.label: it.value for it in query.conditions if it.is_equal and it.label != ACCOUNT}
    if query.labels is None:
        return equal or None
    return {label: equal.get(label) for label in query.labels if label != ACCOUNT}


# Series of a Metrics Insights query from the metrics that it matches.
#
# Observations are aggregated over all metrics of a group: AVG is the sum of all divided by their
# number, not the mean of means.
#
# Source: CloudWatch user guide, "Query components and syntax in CloudWatch Metrics Insights".


OTHER = "Other"
STATISTICS: Mapping[str, str] = {"COUNT": "SampleCount", "MAX": "Maximum", "MIN": "Minimum"}
Read = Callable[[Metric, str], Mapping[float, float]]
Group = tuple[str, ...]


def matching(query: Insights, metrics: Iterable[Metric], account: str) -> list[Metric]:
    """Select the metrics that meet every condition. A missing label meets no condition."""
    found = []
    for metric in metrics:
        labels = get_labels(metric, account)
        if all(_meets(it, labels, account) for it in query.conditions):
            found.append(metric)
    return found


def get_labels(metric: Metric, account: str) -> Mapping[str, str]:
    """The labels of a metric: its dimensions, and its account."""
    return {**dict(metric.dimensions), ACCOUNT: account}


def group_metrics(
    query: Insights, metrics: Iterable[Metric], account: str
) -> Mapping[Group, Sequence[Metric]]:
    """Group the metrics by their values of GROUP BY, in order. Without it there is one group."""
    groups: dict[Group, list[Metric]] = {}
    for metric in metrics:
        labels = get_labels(metric, account)
        groups.setdefault(tuple(labels.get(it, OTHER) for it in query.group_by), []).append(metric)
    return dict(sorted(groups.items()))


def aggregate_metrics(query: Insights, metrics: Sequence[Metric], read: Read) -> dict[float, float]:
    """Aggregate the observations of all metrics by period. `read` reads a metric's statistic."""
    if query.function in ("MAX", "MIN"):
        of = max if query.function == "MAX" else min
        return _join_parts([read(it, STATISTICS[query.function]) for it in metrics], of)
    if query.function == "COUNT":
        return _join_parts([read(it, "SampleCount") for it in metrics], sum)
    sums = _join_parts([read(it, "Sum") for it in metrics], sum)
    if query.function == "SUM":
        return sums
    counts = _join_parts([read(it, "SampleCount") for it in metrics], sum)
    return {at: total / counts[at] for at, total in sums.items() if counts.get(at)}


def order_series(
    query: Insights, series: Sequence[TimeSeries]
) -> tuple[tuple[TimeSeries, ...], bool]:
    """The series that the query returns, and whether more than MAX_SERIES were left out."""
    found = list(series)
    if query.order_by is not None:
        of = REDUCERS[query.order_by]
        known = [it for it in found if it.points]
        known.sort(key=lambda it: of(list(it.points.values())), reverse=query.is_descending)
        found = [*known, *(it for it in found if not it.points)]
    limit = query.limit or MAX_SERIES
    return tuple(found[:limit]), query.limit is None and len(found) > limit


def _meets(condition: Condition, labels: Mapping[str, str], account: str) -> bool:
    value = labels.get(condition.label)
    wanted = account if condition.value is None else condition.value
    return value is not None and (value == wanted) == condition.is_equal


def _join_parts(
    parts: Sequence[Mapping[float, float]], of: Callable[[list[float]], float]
) -> dict[float, float]:
    by_instant: dict[float, list[float]] = {}
    for part in parts:
        for at, value in part.items():
            by_instant.setdefault(at, []).append(value)
    return {at: float(of(by_instant[at])) for at in sorted(by_instant)}
