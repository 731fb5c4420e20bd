"""Evaluates the syntax tree of an expression."""

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
"""Names in arguments of functions that are not ids of queries."""


def evaluate_node(node: Node, known: Mapping[str, Value], context: EvaluationContext) -> Value:
    """The value of `node`; `known` has the values of ids. Raises ExpressionError."""
    match node:
        case Number(value):
            return value
        case Text(value):
            return value
        case Name(id):
            return _find_value(id, known)
        case Negative(of):
            return combine("*", -1.0, evaluate_node(of, known, context), context.work)
        case Binary(sign, left, right):
            first = evaluate_node(left, known, context)
            return combine(sign, first, evaluate_node(right, known, context), context.work)
        case Listed(items):
            return _evaluate_items([evaluate_node(it, known, context) for it in items], context)
        case Apply(function, arguments):
            return math_functions.apply(
                function, [evaluate_node(it, known, context) for it in arguments], context
            )


def _find_value(id: str, known: Mapping[str, Value]) -> Value:
    if id in known:
        return known[id]
    if id in WORDS:
        return Word(id)
    raise ExpressionError(f"There is no query with the id '{id:.100}'.")


def _evaluate_items(items: list[Value], context: EvaluationContext) -> Value:
    context.work.spend(len(items))
    return math_functions.to_array(items)
