"""Gathering: the answers of a scatter become one value. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hostelry.base.errors import HostelryError
from hostelry.graph.steps import GatherAction, GatherBy

Numbers = npt.NDArray[np.float64]


class GatherError(HostelryError):
    """The answers cannot be made one value; the message names the branch."""


def gathered(action: GatherAction, names: Sequence[str], answers: Sequence[Any]) -> Any:
    """The value of `answers`, of the branches `names`; raises GatherError, GraphExpressionError.

    by             of the branches' values
    mean           the mean of numbers, or of lists of equal shapes, by element
    weighted_mean  the same with the weights of the branches that answered
    majority       the most frequent value, by element of lists; of several the first branch's
    max            the largest number, by element; with `score` the value of the branch of the
                   largest score, of several the first's
    stack          a list of them
    concatenate    one list of all elements, or one text
    """
    if not answers:
        raise GatherError(f"no branch of {action.of} has answered")
    values = [answer if action.value is None else action.value.value(answer) for answer in answers]
    match action.by:
        case GatherBy.STACK:
            return values
        case GatherBy.CONCATENATE:
            return _concatenated(names, values)
        case GatherBy.MAJORITY:
            return _majority(names, values)
        case GatherBy.MAX if action.score is not None:
            scores = [_score(name, action.score.value(it)) for name, it in zip(names, answers)]  # noqa: B905
            return values[scores.index(max(scores))]
    numbers = _numbers(names, values)
    if action.by is GatherBy.MAX:
        return _plain(np.max(numbers, axis=0))
    weights = _weights(action.weights, names) if action.by is GatherBy.WEIGHTED_MEAN else None
    return _plain(np.average(numbers, axis=0, weights=weights))


def _numbers(names: Sequence[str], values: Sequence[Any]) -> Numbers:
    """The values as one array; raises GatherError naming the first that does not fit."""
    found: list[Numbers] = []
    for name, value in zip(names, values, strict=True):
        try:
            array = np.asarray(value)
        except ValueError:
            raise GatherError(f"{name} answered a list of uneven lists") from None
        if array.dtype.kind not in "iuf" or not array.size:
            raise GatherError(f"{name} answered no numbers: {_shown(value)}")
        if found and array.shape != found[0].shape:
            raise GatherError(f"{name} answered {_shape(array)} and {names[0]} {_shape(found[0])}")
        found.append(array.astype(np.float64))
    return np.stack(found)


def _weights(weights: Mapping[str, float], names: Sequence[str]) -> list[float]:
    found = [weights[name] for name in names]
    if not sum(found):
        raise GatherError(f"the weights of the branches that answered are 0: {', '.join(names)}")
    return found


def _concatenated(names: Sequence[str], values: Sequence[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    joined: list[Any] = []
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, list):
            raise GatherError(f"{name} answered no list: {_shown(value)}")
        joined += value
    return joined


def _majority(names: Sequence[str], values: Sequence[Any]) -> Any:
    if not any(isinstance(value, list) for value in values):
        return _vote(values)
    lengths = [len(value) if isinstance(value, list) else -1 for value in values]
    for name, length in zip(names, lengths, strict=True):
        if length != lengths[0] or length < 0:
            raise GatherError(f"{name} answered another number of elements than {names[0]}")
    return [_majority(names, votes) for votes in zip(*values, strict=True)]


def _vote(values: Sequence[Any]) -> Any:
    # An object has no hash: its text is what is counted. True and 1 are different answers.
    texts = [f"{type(value).__name__} {value!r}" for value in values]
    return values[texts.index(Counter(texts).most_common(1)[0][0])]


def _score(name: str, score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise GatherError(f"the score of {name} is no number: {_shown(score)}")
    return float(score)


def _plain(array: Any) -> Any:
    return array.tolist()


def _shape(array: Numbers) -> str:
    return "one number" if not array.shape else " by ".join(str(it) for it in array.shape)


def _shown(value: Any) -> str:
    return repr(value)[:80]
