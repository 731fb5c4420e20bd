"""SEARCH: selects metrics by a search text.

A term matches a metric if a word of the metric is the term, in any case. Words are split at changes
of case, and at characters that are neither letters nor digits. A term in quotes matches a whole
name or value exactly. ``Name=term`` looks at one dimension, or at MetricName or Namespace. Adjacent
terms must all match.

Source: CloudWatch user guide, "CloudWatch search expression syntax".
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import msgspec

from hostelry.domain.metric import Metric
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.query.math_syntax import ExpressionError

MAX_CHARACTERS = 1024
MAX_TERMS = 100
MAX_DEPTH = 20
MAX_FOUND = 500
RECENT_S = 14 * 24 * 3600
"""Only metrics with data in the two weeks before the end of the time asked for are found."""

Fits = Callable[[Metric], bool]
_SCHEMA = re.compile(r"\s*\{((?:[^{}\"]|\"(?:\\.|[^\"\\])*\")*)\}")
_PART = re.compile(r"\s*(?:\"((?:\\.|[^\"\\])*)\"|([^\s\",{}]+))\s*(,|$)")
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>\"(?:\\.|[^\"\\])*\")|(?P<sign>[()=])|(?P<word>[^\s()={}\"]+))"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|\d+")


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The question for a store, and a filter of its answers."""

    namespace: str | None
    name: str | None
    dimensions: tuple[str, ...] | None
    fits: Fits

    def filter(self, end: float) -> MetricFilter:
        """Build the wider question that a store can answer."""
        names = None if self.dimensions is None else dict.fromkeys(self.dimensions)
        return MetricFilter(
            namespace=self.namespace,
            name=self.name,
            dimensions=names,
            exact=names is not None,
            since=end - RECENT_S,
        )


@lru_cache(maxsize=256)
def parse_search(text: str) -> Search:
    """Parse a search text. Raises ExpressionError."""
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            f"The search has {len(text)} characters; a search has at most {MAX_CHARACTERS}."
        )
    namespace: str | None = None
    dimensions: tuple[str, ...] | None = None
    schema = _SCHEMA.match(text)
    if schema:
        namespace, *rest = _schema_parts(schema[1])
        dimensions = tuple(rest)
        text = text[schema.end() :]
    tokens = list(_tokens(text))
    fits = _Terms(tokens).read_all()
    name = _sole_name(tokens)
    return Search(namespace=namespace, name=name, dimensions=dimensions, fits=fits)


@lru_cache(maxsize=8192)
def split_words(text: str) -> frozenset[str]:
    """The words of a name, in lower case, and the name itself."""
    parts = re.split(r"[^A-Za-z0-9]+", text)
    whole = {part.lower() for part in parts if part}
    return frozenset({*whole, *(it.lower() for it in _WORDS.findall(text)), text.lower()})


def build_label(metric: Metric) -> str:
    """The label that distinguishes a found series: its dimensions' values and its name."""
    return " ".join((*(value for _, value in metric.dimensions), metric.name))


def _schema_parts(text: str) -> list[str]:
    parts, at = [], 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or found.end() == at:
            raise ExpressionError(f"'{{{text:.100}}}' is not a namespace and names of dimensions.")
        parts.append(_plain(found[1]) if found[1] is not None else found[2])
        at = found.end()
    if not parts:
        raise ExpressionError("A search's braces name a namespace: {AWS/SageMaker, EndpointName}.")
    return parts


def _tokens(text: str) -> Iterable[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise ExpressionError(f"Unexpected '{text[at : at + 20].strip()}' in the search.")
        at = found.end()
        kind = str(found.lastgroup)
        yield kind, _plain(found[kind][1:-1]) if kind == "quoted" else found[kind]


def _sole_name(tokens: Sequence[tuple[str, str]]) -> str | None:
    """The name that everything found must have, where the terms say so plainly."""
    if any(it in tokens for it in (("word", "OR"), ("word", "NOT"), ("sign", "("))):
        return None
    for at in range(len(tokens) - 2):
        if tokens[at : at + 2] == [("word", "MetricName"), ("sign", "=")]:
            kind, text = tokens[at + 2]
            return text if kind == "quoted" else None
    return None


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


class _Terms:
    """Recursive descent over the terms: OR of ANDs, where AND may be left unsaid."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        if len(tokens) > 4 * MAX_TERMS:
            raise ExpressionError(f"The search has more than {MAX_TERMS} terms.")
        self._tokens = tokens
        self._at = 0

    def read_all(self) -> Fits:
        if not self._tokens:
            return lambda _: True
        fits = self._either(0)
        if self._at < len(self._tokens):
            raise ExpressionError(f"Unexpected '{self._tokens[self._at][1]:.50}' in the search.")
        return fits

    def _either(self, depth: int) -> Fits:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"The search is nested deeper than {MAX_DEPTH} levels.")
        choices = [self._both(depth)]
        while self._is_next("word", "OR"):
            self._at += 1
            choices.append(self._both(depth))
        return choices[0] if len(choices) == 1 else lambda it: any(fits(it) for fits in choices)

    def _both(self, depth: int) -> Fits:
        terms = [self._term(depth)]
        while self._at < len(self._tokens):
            if self._is_next("word", "AND"):
                self._at += 1
            elif self._is_next("word", "OR") or self._is_next("sign", ")"):
                break
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else lambda it: all(fits(it) for fits in terms)

    def _term(self, depth: int) -> Fits:
        if self._is_next("word", "NOT"):
            self._at += 1
            if depth > MAX_DEPTH:
                raise ExpressionError(f"The search is nested deeper than {MAX_DEPTH} levels.")
            refused = self._term(depth + 1)
            return lambda it: not refused(it)
        kind, text = self._next()
        if (kind, text) == ("sign", "("):
            fits = self._either(depth + 1)
            self._close()
            return fits
        if kind == "sign":
            raise ExpressionError(f"Unexpected '{text}' in the search.")
        if not self._is_next("sign", "="):
            return _anywhere(_matcher(kind, text))
        self._at += 1
        return self._read_designated(text, depth)

    def _read_designated(self, place: str, depth: int) -> Fits:
        """``place=term``, or ``place=(term OR term)``."""
        if place.startswith(":"):
            raise ExpressionError(f"{place:.50} cannot be searched for; there is one account.")
        kind, text = self._next()
        if (kind, text) != ("sign", "("):
            return _at(place, [_matcher(kind, text)])
        choices: list[Callable[[str], bool]] = []
        while True:
            kind, text = self._next()
            choices.append(_matcher(kind, text))
            if not self._is_next("word", "OR"):
                break
            self._at += 1
        self._close()
        return _at(place, choices)

    def _is_next(self, kind: str, text: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] == (kind, text)

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise ExpressionError("The search ends where a term is expected.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _close(self) -> None:
        if self._next() != ("sign", ")"):
            raise ExpressionError("A parenthesis of the search is not closed.")


def _matcher(kind: str, text: str) -> Callable[[str], bool]:
    if kind == "sign":
        raise ExpressionError(f"Unexpected '{text}' in the search.")
    if kind == "quoted":
        return lambda name: name == text
    wanted = text.lower()
    return lambda name: wanted in split_words(name)


def _anywhere(matches: Callable[[str], bool]) -> Fits:
    def fits(metric: Metric) -> bool:
        texts = (metric.namespace, metric.name, *(it for pair in metric.dimensions for it in pair))
        return any(matches(text) for text in texts)

    return fits


def _at(place: str, choices: Sequence[Callable[[str], bool]]) -> Fits:
    def fits(metric: Metric) -> bool:
        own = {"MetricName": metric.name, "Namespace": metric.namespace}
        value = own.get(place, dict(metric.dimensions).get(place))
        return value is not None and any(matches(value) for matches in choices)

    return fits
