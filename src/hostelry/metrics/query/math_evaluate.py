"""The value of an expression's tree, given the values of what it names."""

from collections.abc import Mapping

from hostelry.metrics.query import math_functions
from hostelry.metrics.query.math_functions import REDUCERS, EvaluationContext
from hostelry.metrics.query.math_syntax import (
    Apply,
    Binary,
    ExpressionError,
    Listed,
    Name,
    Negative,
    Node,
    Number,
    Text,
)
from hostelry.metrics.query.math_values import Value, Word, combine

WORDS = frozenset({"REPEAT", "LINEAR", "ASC", "DESC", *REDUCERS})
"""What functions name without being a query's id."""


def value_of(node: Node, known: Mapping[str, Value], around: EvaluationContext) -> Value:
    """The value of `node`; `known` are the values of ids. Raises ExpressionError."""
    match node:
        case Number(value):
            return value
        case Text(value):
            return value
        case Name(id):
            return _named(id, known)
        case Negative(of):
            return combine("*", -1.0, value_of(of, known, around), around.work)
        case Binary(sign, left, right):
            first = value_of(left, known, around)
            return combine(sign, first, value_of(right, known, around), around.work)
        case Listed(items):
            return _listed([value_of(it, known, around) for it in items], around)
        case Apply(function, arguments):
            return math_functions.apply(
                function, [value_of(it, known, around) for it in arguments], around
            )


def _named(id: str, known: Mapping[str, Value]) -> Value:
    if id in known:
        return known[id]
    if id in WORDS:
        return Word(id)
    raise ExpressionError(f"There is no query with the id '{id:.100}'.")


def _listed(items: list[Value], around: EvaluationContext) -> Value:
    around.work.spend(len(items))
    return math_functions.listed(items)
