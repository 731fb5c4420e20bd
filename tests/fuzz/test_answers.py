"""Any two answers of models have a distance from 0 to 1, which is symmetric."""

import json

from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import mutated

from hostelry.comparison.answers import measure_distance

ANSWERS = (
    b'{"id": "a", "object": "chat.completion", "choices": [{"message": {"content": "to be"}}]}',
    b'data: {"choices": [{"delta": {"content": "to"}}]}\n\ndata: [DONE]\n\n',
    b'{"token": {"text": "a "}}\n{"token": {"text": "b"}}\n',
    json.dumps([[0.1 * it for it in range(8)], [1, 10**40, -1e308, 1e-320, 0.0]]).encode(),
    b"0.5,cat\n1e308,dog\nnan,inf\n",
    b"It was the best of times, it was the worst of times.",
    b"\x89PNG\x00\xff",
)
WORDS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\n", b"data: ", b'"content": ', b'"text": "x"'),
    *(b"1", b"-", b"1e999", b"9" * 60, b"true", b"null", b"[" * 99, b"word ", b"\xff", b'{"a": '),
)


def test_any_two_answers_have_a_distance(cases: Cases) -> None:
    for random in cases(20_000):
        old = mutated(random.choice(ANSWERS), random, WORDS)
        new = mutated(random.choice((old, random.choice(ANSWERS))), random, WORDS)
        found = measure_distance(old, new)
        assert 0.0 <= found.distance <= 1.0, (old, new)
        assert found.close or not found.exact, (old, new)
        assert measure_distance(new, old) == found, (old, new)
        assert measure_distance(old, old).exact, old
