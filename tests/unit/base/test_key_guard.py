import asyncio
from typing import Any

from tests.cases import case, cases

from hostelry.base.guards import KeyGuard, has_key

KEY = "3f9a"


@cases(
    "given, shown",
    case("the key", [KEY], True),
    case("no value", [], False),
    case("an empty value", [""], False),
    case("a shorter value", [KEY[:-1]], False),
    case("a longer value", [KEY + "0"], False),
    case("the key twice", [KEY, KEY], False),
    case("the key twice in one value", [f"{KEY},{KEY}"], False),
    case("a value outside ASCII", ["\u00e9"], False),
    case("a lone surrogate", ["\udcff"], False),
)
def test_the_key_is_shown_by_one_equal_value(given: list[str], shown: bool) -> None:
    assert has_key(KEY, given) is shown


@cases(
    "headers, answer",
    case("the key", [(b"x-key", KEY.encode())], "served"),
    case("under another name", [(b"x-kez", KEY.encode())], "refused"),
    case("twice", [(b"x-key", KEY.encode())] * 2, "refused"),
    case("without it", [], "refused"),
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
