"""Distances of two answers to the same request, by the form that both have."""

import json

import pytest
from tests.cases import case, cases

from hostelry.comparison.answers import cosine_distance, measure_distance, words_apart

CHAT = {"id": "a", "object": "chat.completion", "created": 1, "model": "v1"}


def chat(text: str, **more: object) -> bytes:
    return json.dumps({**CHAT, "choices": [{"message": {"content": text}}], **more}).encode()


def events(*words: str) -> bytes:
    chunks = [json.dumps({"id": word, "choices": [{"delta": {"content": word}}]}) for word in words]
    return "".join(f"data: {it}\n\n" for it in (*chunks, "[DONE]")).encode()


@cases(
    "old, new, exact, close, distance",
    case("nothing", b"", b"", True, True, 0.0),
    case("the same bytes", b"\xff\x00", b"\xff\x00", True, True, 0.0),
    case("other bytes", b"\xff\x00", b"\xff\x01", False, False, 1.0),
    case("bytes in place of text", b"{}", b"\xff", False, False, 1.0),
    case("spelling", b'{"a": 1, "b": [2]}', b'{"b":[2.0],"a":1}', True, True, 0.0),
    case("a near number", b'{"a": 1.0}', b'{"a": 1.0005}', False, True, 5e-4),
    case("near zero", b'{"a": 1e-9}', b'{"a": -1e-9}', False, True, 0.0),
    case("another number", b'{"a": 1.0}', b'{"a": 2.0}', False, False, 0.5),
    case("another sign", b'{"a": 1}', b'{"a": -1}', False, False, 1.0),
    case("more members", b'{"a": 1}', b'{"a": 1, "b": 2}', False, False, 1.0),
    case("another type", b'{"a": 1}', b'{"a": "1"}', False, False, 1.0),
    case("another truth", b'{"a": true}', b'{"a": false}', False, False, 1.0),
    case("more values", b"[1, 2]", b"[1, 2, 3]", False, False, 1.0),
    case("a vector, turned", b"[3.0, 4.0]", b"[4.0, 3.0]", False, False, 0.04),
    case("a near vector", b"[[1.0, 0.0]]", b"[[1.0, 1e-7]]", False, True, 0.0),
    case("rows of one value", b"[[1], [2]]", b"[[1], [4]]", False, False, 0.5),
    case(
        "a vector in a document",
        b'{"embedding": [1, 0], "n": 8}',
        b'{"embedding": [0, 1], "n": 8}',
        False,
        False,
        1.0,
    ),
    case("huge integers", b"1" + b"0" * 400, b"2" + b"0" * 400, False, False, 1.0),
    case("brackets alone", b"[" * 9000, b"[" * 9001, False, False, 1.0),
    case("a word of four", chat("a b c d"), chat("a b x d"), False, False, 0.25),
    case("its own id", chat("a b"), chat("a b", id="b", created=9, model="v2"), True, True, 0.0),
    case("other members", chat("a b c d"), chat("a b c x", usage={"n": 1}), False, False, 0.25),
    case("other events", events("a ", "b"), events("a", " b"), True, True, 0.0),
    case("events", events("a ", "b"), events("a ", "c"), False, False, 0.5),
    case("by line", b'{"text": "a "}\n{"text": "b"}', b'{"text": "a b"}\n{}', True, True, 0.0),
    case("CSV, near", b"1.0,x\n2.0,y", b"1.0005,x\n2.0,y", False, True, 5e-4),
    case("CSV", b"1.0,x\n2.0,y", b"1.0,x\n4.0,y", False, False, 0.5),
    case("CSV, more rows", b"0.5\n0.25", b"0.5\n0.25\n0.1", False, False, 1 / 3),
    case("CSV without a number", b"nan,1", b"nan,1.0001", False, True, 1e-4),
    case("text", b"the cat sat", b"the dog sat", False, False, 1 / 3),
    case("no text", b"the cat", b"", False, False, 1.0),
)
def test_answers_are_apart_by_their_form(
    old: bytes, new: bytes, exact: bool, close: bool, distance: float
) -> None:
    for found in (measure_distance(old, new), measure_distance(new, old)):
        assert (found.exact, found.close) == (exact, close)
        assert found.distance == pytest.approx(distance, abs=1e-6)


@cases(
    "old, new, distance",
    case("none", "", "", 0.0),
    case("the same", "a b c", "a b c", 0.0),
    case("one is left out", "a b c d", "a c d", 0.25),
    case("one is added", "a b c d", "a x b c d", 0.2),
    case("in another order", "a b c d", "d c b a", 1.0),
    case("nothing in common", "a a", "b b b b", 1.0),
)
def test_words_are_apart_by_edits(old: str, new: str, distance: float) -> None:
    assert words_apart(old.split(), new.split()) == pytest.approx(distance)


def test_long_texts_that_differ_everywhere_take_no_time_of_their_square() -> None:
    old, new = ([f"{side}{it}" for it in range(100_000)] for side in "ab")
    assert words_apart(old, new) == 1.0
    mixed = [word if it % 10 else "x" for it, word in enumerate(old)]
    assert words_apart(old, mixed) == pytest.approx(0.2, abs=0.01), "twice of what it is"


def test_vectors_that_are_zero_have_a_distance() -> None:
    assert cosine_distance([0.0, 0.0], [0.0, 0.0]) == 0.0
    assert cosine_distance([0.0, 0.0], [1.0, 0.0]) == 1.0
    assert cosine_distance([1e300, 1e300], [1e300, 1e300]) in (0.0, 1.0)
    assert cosine_distance([1.0, 2.0], [-1.0, -2.0]) == 1.0
