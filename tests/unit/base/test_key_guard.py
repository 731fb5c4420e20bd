import asyncio
from typing import Any

import pytest

from hostelry.base.guards import KeyGuard, has_key

KEY = "3f9a"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param([KEY], True, id="the key"),
        pytest.param([], False, id="no value"),
        pytest.param([""], False, id="an empty value"),
        pytest.param([KEY[:-1]], False, id="a shorter value"),
        pytest.param([KEY + "0"], False, id="a longer value"),
        pytest.param([KEY, KEY], False, id="the key twice"),
        pytest.param([f"{KEY},{KEY}"], False, id="the key twice in one value"),
        pytest.param(["\u00e9"], False, id="a value outside ASCII"),
        pytest.param(["\udcff"], False, id="a lone surrogate"),
    ],
)
def test_the_key_is_shown_by_one_equal_value(given: list[str], shown: bool) -> None:
    assert has_key(KEY, given) is shown


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        pytest.param([(b"x-key", KEY.encode())], "served", id="the key"),
        pytest.param([(b"x-kez", KEY.encode())], "refused", id="under another name"),
        pytest.param([(b"x-key", KEY.encode())] * 2, "refused", id="twice"),
        pytest.param([], "refused", id="without it"),
    ],
)
def test_the_guard_refuses_before_the_body_is_read(
    headers: list[tuple[bytes, bytes]], answer: str
) -> None:
    answers: list[str] = []

    def app(name: str) -> Any:
        async def call(_scope: Any, _receive: Any, _send: Any) -> None:
            answers.append(name)

        return call

    async def receive() -> Any:
        raise AssertionError("the body is read")

    async def send(_message: Any) -> None:
        raise AssertionError("the guard itself answers")

    guard = KeyGuard(app("served"), "X-Key", KEY, app("refused"))
    asyncio.run(guard({"type": "http", "headers": headers}, receive, send))
    assert answers == [answer]
