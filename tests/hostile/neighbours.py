"""Streams of the base and an adapter that must continue while their server is attacked."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx

PARAMETERS = {"max_new_tokens": 100, "ignore_eos_token": True, "seed": 3, "do_sample": True}
NEIGHBOURS: tuple[dict[str, Any], ...] = (
    {"inputs": "hello", "parameters": {**PARAMETERS, "do_sample": False}},
    {"inputs": "hola", "adapters": "es", "parameters": {**PARAMETERS, "temperature": 0.9}},
)


def undisturbed(client: httpx.Client, attack: Callable[[], httpx.Response]) -> httpx.Response:
    """Attack while all neighbours' streams are under way, and return the answer to the attack.

    Asserts that every token of the streams is the same as without an attack.
    """
    expected = streams(client, lambda: None)[0]
    texts, answer = streams(client, attack)
    assert texts == expected
    assert isinstance(answer, httpx.Response)
    return answer


def streams(client: httpx.Client, meanwhile: Callable[[], Any]) -> tuple[list[str], Any]:
    """The neighbours' texts, and the result of `meanwhile`."""
    with ExitStack() as stack:
        under_way = []
        for body in NEIGHBOURS:
            answer = stack.enter_context(
                client.stream("POST", "/invocations", json={**body, "stream": True})
            )
            lines = answer.iter_lines()
            under_way.append((next(lines), lines))
        given = meanwhile()
        return [whole_text(first, rest) for first, rest in under_way], given


def whole_text(first: str, rest: Iterator[str]) -> str:
    """The text in the last line of a stream."""
    *_, last = [first, *rest]
    ended = json.loads(last)
    assert ended.get("generated_text"), last
    return str(ended["generated_text"])
