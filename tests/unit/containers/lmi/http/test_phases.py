"""Queue, prefill and decode of a request, which the gateway notes with its call."""

import pytest
from tests.unit.containers.lmi.tiny import ask, server

from hostelry.graph.step_report import STEPS_HEADER, parse_steps


@pytest.mark.parametrize(
    ("stream", "names"),
    [
        pytest.param(False, {"queue", "prefill", "decode"}, id="of a whole answer all three"),
        pytest.param(True, {"queue", "prefill"}, id="of a stream what is over at its first token"),
    ],
)
def test_an_answer_has_the_times_of_its_phases(stream: bool, names: set[str]) -> None:
    asked = {"inputs": "hello", "stream": stream, "parameters": {"max_new_tokens": 4}}
    answer = ask(server(), "/invocations", asked)
    rows = parse_steps(answer.headers[STEPS_HEADER.lower()])
    assert {"queue", "prefill"} <= {it.name for it in rows} <= names
    assert {it.kind for it in rows} == {"engine"}
    ends = [it.at_ms + it.ms for it in rows]
    assert ends == sorted(ends)
    assert all(it.ms >= 0 for it in rows)
