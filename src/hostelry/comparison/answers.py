"""Distance of two answers to the same request: none, numbers within a tolerance, or more.

both answers                            compared                                 distance
-------------------------------------   --------------------------------------   -------------------
the same bytes                          equal                                    0
JSON of the same members and lengths    numbers, arrays of numbers, and the      the largest
                                        words of all texts that differ
JSON of any other form                  the words of their texts                 of words, 1 without
events (SSE), or JSON by line           the words of all events' texts           of words
CSV of as many cells                    each number, the words of other cells    the largest
text                                    its words                                of words
anything else, such as an image         only whether the bytes are equal         1

Numbers are within the tolerance if they differ by at most `RELATIVE` of the larger one, or by
`ABSOLUTE`. Any other value must be equal. An object of OpenAI's form is compared without its id,
its time, and the names of its model and server. The distance of vectors is one minus their cosine.
The distance of words is the number of edits from one text to the other, by the words of the longer
one.

The work is bounded: if words differ for long, the pairs of neighbours that both have count.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import mul
from typing import Any

import msgspec

RELATIVE, ABSOLUTE = 1e-3, 1e-6
MOST_ALIGNED_WORDS = 96  # of each side: their product is the work of a distance
VOLATILE = frozenset({"id", "created", "model", "system_fingerprint", "service_tier"})
TEXT_MEMBERS = frozenset({"content", "text", "generated_text", "completion", "output_text"})
MOST_DEPTH = 64
DATA = "data:"
NO_JSON = object()
NESTED = frozenset({dict, list})
NUMBERS = frozenset({int, float})
Pair = tuple[Any, Any]


class _OtherFormError(Exception):
    """Two documents have other members, lengths or types."""


class AnswerDistance(msgspec.Struct, frozen=True, kw_only=True):
    """How far two answers are apart: `distance` is from 0 to 1.

    They are `exact` where all values are equal, and `close` where only numbers differ, each within
    the tolerance.
    """

    exact: bool
    close: bool
    distance: float


EQUAL = AnswerDistance(exact=True, close=True, distance=0.0)
APART = AnswerDistance(exact=False, close=False, distance=1.0)


def measure_distance(old: bytes, new: bytes) -> AnswerDistance:
    """The distance of two whole answers."""
    if old == new:
        return EQUAL
    one, other = _text(old), _text(new)
    if one is None or other is None:
        return APART
    try:
        return _measure_answers(one, other)
    except OverflowError:  # an integer that no float can be
        return APART


def words_apart(old: Sequence[str], new: Sequence[str]) -> float:
    """The edit distance of two sequences of words, by the length of the longer one.

    Of words that are left between an equal beginning and an equal end, more than
    `MOST_ALIGNED_WORDS` of a side are compared by their pairs of neighbours, in whatever order: the
    distance is then up to twice as large, and smaller where passages have moved.
    """
    longest, shortest = max(len(old), len(new)), min(len(old), len(new))
    if not longest:
        return 0.0
    begin = end = 0
    while begin < shortest and old[begin] == new[begin]:
        begin += 1
    while end < shortest - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    left, right = old[begin : len(old) - end], new[begin : len(new) - end]
    if max(len(left), len(right)) > MOST_ALIGNED_WORDS:
        common = (Counter(pairwise(left)) & Counter(pairwise(right))).total()
        return (max(len(left), len(right)) - common) / longest
    return _edits(left, right) / longest


def cosine_distance(old: Sequence[float], new: Sequence[float]) -> float:
    """One minus the cosine of two vectors of equal length, at most 1. 1 if just one is zero."""
    lengths = [math.hypot(*it) for it in (old, new)]
    if not all(lengths):
        return float(lengths[0] != lengths[1])
    cosine = sum(map(mul, old, new)) / lengths[0] / lengths[1]
    return min(1.0, max(0.0, 1.0 - cosine)) if math.isfinite(cosine) else 1.0


def _measure_answers(one: str, other: str) -> AnswerDistance:
    documents = _json(one), _json(other)
    if NO_JSON not in documents:
        return _measure_documents(*documents)
    joined = _events(one), _events(other)
    if joined[0] is not None and joined[1] is not None:
        return _measure_pairs([joined])
    cells = _cells(one), _cells(other)
    numbers = [any(isinstance(it, float) for it in side) for side in cells]
    if len(cells[0]) == len(cells[1]) and all(numbers):
        return _measure_pairs(zip(*cells, strict=True))
    return _measure_pairs([(one, other)])


def _measure_documents(old: Any, new: Any) -> AnswerDistance:
    old, new = _stable(old), _stable(new)
    try:
        pairs: list[Pair] = []
        _pair_leaves(old, new, pairs, MOST_DEPTH)
        return _measure_pairs(pairs)
    except _OtherFormError:
        texts = list(_texts(old)), list(_texts(new))
        return _measure_pairs([("\n".join(texts[0]), "\n".join(texts[1]))]) if any(texts) else APART


def _measure_pairs(pairs: Iterable[Pair]) -> AnswerDistance:
    """The distance of answers with these values, one of each in a pair."""
    exact = close = True
    distance = 0.0
    words: tuple[list[str], list[str]] = ([], [])
    for old, new in pairs:
        if old == new:
            continue
        exact = False
        if isinstance(old, str) and isinstance(new, str):
            close = False
            words[0].extend(old.split())
            words[1].extend(new.split())
        elif isinstance(old, list) and isinstance(new, list):
            close = close and all(map(_is_near, old, new))
            distance = max(distance, cosine_distance(old, new))
        elif type(old) in NUMBERS and type(new) in NUMBERS:
            close = close and _is_near(old, new)
            distance = max(distance, _relative(old, new))
        else:
            close, distance = False, 1.0
    return AnswerDistance(exact=exact, close=close, distance=max(distance, words_apart(*words)))


def _pair_leaves(old: Any, new: Any, pairs: list[Pair], depth: int) -> None:
    """Add the values of two documents that differ to `pairs`, an array of numbers as one value.

    Raises _OtherFormError.
    """
    kind = type(old)
    if kind is list and type(new) is list:
        if len(old) != len(new) or not depth:
            raise _OtherFormError
        if len(old) > 1 and _are_numbers(old) and _are_numbers(new):
            pairs.append((old, new))
        else:
            for one, other in zip(old, new, strict=True):
                _pair_leaves(one, other, pairs, depth - 1)
    elif kind is dict and type(new) is dict:
        if old.keys() != new.keys() or not depth:
            raise _OtherFormError
        for name, value in old.items():
            _pair_leaves(value, new[name], pairs, depth - 1)
    elif kind in NESTED or type(new) in NESTED:
        raise _OtherFormError
    elif old != new:
        pairs.append((old, new))


def _stable(document: Any) -> Any:
    """The document without what differs from one answer of the same model to the next."""
    if isinstance(document, dict) and "object" in document:
        return {name: it for name, it in document.items() if name not in VOLATILE}
    return document


def _texts(document: Any, depth: int = MOST_DEPTH) -> Iterator[str]:
    """The texts of a document that a model has written."""
    if not depth:
        return
    if isinstance(document, list):
        for value in document:
            yield from _texts(value, depth - 1)
    elif isinstance(document, dict):
        for name, value in document.items():
            if isinstance(value, str):
                if name in TEXT_MEMBERS:
                    yield value
            else:
                yield from _texts(value, depth - 1)


def _events(text: str) -> str | None:
    """The texts of all events, joined. None if the answer has no events with texts."""
    lines = [it.strip() for it in text.split("\n")]
    events = [it.removeprefix(DATA).strip() for it in lines if it.startswith(DATA)]
    documents = [_json(it) for it in events or lines if it]
    found = [text for document in documents for text in _texts(document)]
    return "".join(found) if found else None


def _cells(text: str) -> list[float | str]:
    return [_cell(cell.strip()) for line in text.split("\n") for cell in line.split(",")]


def _cell(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return NO_JSON


def _are_numbers(values: Iterable[Any]) -> bool:
    return NUMBERS.issuperset(map(type, values))


def _relative(old: float, new: float) -> float:
    apart = abs(old - new)
    return 0.0 if apart <= ABSOLUTE else min(1.0, apart / max(abs(old), abs(new)))


def _is_near(old: float, new: float) -> bool:
    return math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _edits(old: Sequence[str], new: Sequence[str]) -> int:
    """Words that are added, removed or changed from one to the other, at least."""
    row = list(range(len(new) + 1))
    for number, word in enumerate(old, 1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(new, 1):
            change = diagonal + (word != other)
            diagonal = row[column]
            row[column] = min(change, diagonal + 1, row[column - 1] + 1)
    return row[-1]
