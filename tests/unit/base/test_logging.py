import asyncio
import json
import logging
import sys

import pytest
from tests.cases import case, cases

from hostelry.base.logging import (
    FORMATS,
    JSON,
    TEXT,
    about_request,
    build_formatter,
    is_more_than_a_lost_connection,
    no_request,
)

AT = 1_700_000_000.25


def record(message: str, *, exc_info: bool = False) -> logging.LogRecord:
    info = sys.exc_info() if exc_info else None
    made = logging.LogRecord("hostelry.x", logging.WARNING, "x.py", 1, message, (), info)
    made.created, made.msecs = AT, 250
    return made


def lines_in_a_task(log_format: str, *messages: str) -> list[str]:
    """The lines as they are during request r-1, in a thread that it starts, and after it."""
    formatter = build_formatter("gateway-1", log_format)

    async def task() -> list[str]:
        token = about_request("r-1")
        during = [formatter.format(record(it)) for it in messages]
        during.append(await asyncio.to_thread(formatter.format, record("in a thread")))
        no_request(token)
        return [*during, formatter.format(record("after"))]

    return asyncio.run(task())


def test_a_text_line_names_its_request_once() -> None:
    first, named, in_thread, after = lines_in_a_task(TEXT, "a copy failed", "request r-1 failed")
    assert first.endswith("WARNING gateway-1 hostelry.x: a copy failed [request r-1]")
    assert named.endswith("hostelry.x: request r-1 failed")
    assert in_thread.endswith("in a thread [request r-1]")
    assert after.endswith("hostelry.x: after")


def test_a_json_line_has_its_request_and_is_one_line() -> None:
    first, in_thread, after = map(json.loads, lines_in_a_task(JSON, 'two\nlines "quoted"'))
    assert first == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "process": "gateway-1",
        "logger": "hostelry.x",
        "message": 'two\nlines "quoted"',
        "request_id": "r-1",
    }
    assert in_thread["request_id"] == "r-1"
    assert "request_id" not in after


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_traceback_is_kept(log_format: str) -> None:
    try:
        raise ValueError("wrong")  # noqa: TRY301 - the logged error
    except ValueError:
        text = build_formatter("control", log_format).format(record("failed", exc_info=True))
    assert "ValueError: wrong" in text
    assert (log_format == JSON) == ("\n" not in text)


CLOSED = RuntimeError(
    "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
)


@cases(
    "message, error, is_logged",
    case("a connection that is lost", "Fatal error on SSL protocol\nx", CLOSED, False),
    case("a defect in TLS", "Fatal error on SSL protocol\nx", ValueError("x"), True),
    case("a defect that writes", "Exception in callback", CLOSED, True),
    case("no error", "Task was destroyed but it is pending!", None, True),
)
def test_a_connection_that_is_lost_is_no_defect(
    message: str, error: Exception | None, is_logged: bool
) -> None:
    made = record(message)
    made.exc_info = None if error is None else (type(error), error, None)
    assert is_more_than_a_lost_connection(made) == is_logged
