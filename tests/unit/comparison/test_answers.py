"""Distances of two answers to the same request, by the form that both have."""

import json

import pytest

from hostelry.comparison.answers import cosine_distance, measure_distance, words_apart

CHAT = {"id": "a", "object": "chat.completion", "created": 1, "model": "v1"}


def chat(text: str, **more: object) -> bytes:
    return json.dumps({**CHAT, "choices": [{"message": {"content": text}}], **more}).encode()


def events(*words: str) -> bytes:
    chunks = [json.dumps({"id": word, "choices": [{"delta": {"content": word}}]}) for word in words]
    return "".join(f"data: {it}\n\n" for it in (*chunks, "[DONE]")).encode()


@pytest.mark.parametrize(
    ("old", "new", "exact", "close", "distance"),
    [
        pytest.param(b"", b"", True, True, 0.0, id="nothing"),
        pytest.param(b"\xff\x00", b"\xff\x00", True, True, 0.0, id="the same bytes"),
        pytest.param(b"\xff\x00", b"\xff\x01", False, False, 1.0, id="other bytes"),
        pytest.param(b"{}", b"\xff", False, False, 1.0, id="bytes in place of text"),
        pytest.param(b'{"a": 1, "b": [2]}', b'{"b":[2.0],"a":1}', True, True, 0.0, id="spelling"),
        pytest.param(b'{"a": 1.0}', b'{"a": 1.0005}', False, True, 5e-4, id="a near number"),
        pytest.param(b'{"a": 1e-9}', b'{"a": -1e-9}', False, True, 0.0, id="near zero"),
        pytest.param(b'{"a": 1.0}', b'{"a": 2.0}', False, False, 0.5, id="another number"),
        pytest.param(b'{"a": 1}', b'{"a": -1}', False, False, 1.0, id="another sign"),
        pytest.param(b'{"a": 1}', b'{"a": 1, "b": 2}', False, False, 1.0, id="more members"),
        pytest.param(b'{"a": 1}', b'{"a": "1"}', False, False, 1.0, id="another type"),
        pytest.param(b'{"a": true}', b'{"a": false}', False, False, 1.0, id="another truth"),
        pytest.param(b"[1, 2]", b"[1, 2, 3]", False, False, 1.0, id="more values"),
        pytest.param(b"[3.0, 4.0]", b"[4.0, 3.0]", False, False, 0.04, id="a vector, turned"),
        pytest.param(b"[[1.0, 0.0]]", b"[[1.0, 1e-7]]", False, True, 0.0, id="a near vector"),
        pytest.param(b"[[1], [2]]", b"[[1], [4]]", False, False, 0.5, id="rows of one value"),
        pytest.param(
            b'{"embedding": [1, 0], "n": 8}',
            b'{"embedding": [0, 1], "n": 8}',
            False,
            False,
            1.0,
            id="a vector in a document",
        ),
        pytest.param(b"1" + b"0" * 400, b"2" + b"0" * 400, False, False, 1.0, id="huge integers"),
        pytest.param(b"[" * 9000, b"[" * 9001, False, False, 1.0, id="brackets alone"),
        pytest.param(chat("a b c d"), chat("a b x d"), False, False, 0.25, id="a word of four"),
        pytest.param(
            chat("a b"),
            chat("a b", id="b", created=9, model="v2"),
            True,
            True,
            0.0,
            id="its own id",
        ),
        pytest.param(
            chat("a b c d"), chat("a b c x", usage={"n": 1}), False, False, 0.25, id="other members"
        ),
        pytest.param(events("a ", "b"), events("a", " b"), True, True, 0.0, id="other events"),
        pytest.param(events("a ", "b"), events("a ", "c"), False, False, 0.5, id="events"),
        pytest.param(
            b'{"text": "a "}\n{"text": "b"}', b'{"text": "a b"}\n{}', True, True, 0.0, id="by line"
        ),
        pytest.param(b"1.0,x\n2.0,y", b"1.0005,x\n2.0,y", False, True, 5e-4, id="CSV, near"),
        pytest.param(b"1.0,x\n2.0,y", b"1.0,x\n4.0,y", False, False, 0.5, id="CSV"),
        pytest.param(b"0.5\n0.25", b"0.5\n0.25\n0.1", False, False, 1 / 3, id="CSV, more rows"),
        pytest.param(b"nan,1", b"nan,1.0001", False, True, 1e-4, id="CSV without a number"),
        pytest.param(b"the cat sat", b"the dog sat", False, False, 1 / 3, id="text"),
        pytest.param(b"the cat", b"", False, False, 1.0, id="no text"),
    ],
)
def test_answers_are_apart_by_their_form(
    old: bytes, new: bytes, exact: bool, close: bool, distance: float
) -> None:
    for found in (measure_distance(old, new), measure_distance(new, old)):
        assert (found.exact, found.close) == (exact, close)
        assert found.distance == pytest.approx(distance, abs=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "distance"),
    [
        pytest.param("", "", 0.0, id="none"),
        pytest.param("a b c", "a b c", 0.0, id="the same"),
        pytest.param("a b c d", "a c d", 0.25, id="one is left out"),
        pytest.param("a b c d", "a x b c d", 0.2, id="one is added"),
        pytest.param("a b c d", "d c b a", 1.0, id="in another order"),
        pytest.param("a a", "b b b b", 1.0, id="nothing in common"),
    ],
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
