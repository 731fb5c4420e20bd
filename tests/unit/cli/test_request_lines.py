import pytest

from hostelry.cli.logs import request_lines

TRACE = [
    "2026-01-01 00:00:02,000 ERROR x: request r-1: failed",
    "Traceback (most recent call last):",
    '  File "x.py"',
    "ValueError: wrong",
]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param(
            ["2026-01-01 00:00:01,000 INFO x: a [request r-1]", *TRACE, "2026-01-01 00:00:03,0 y"],
            ["2026-01-01 00:00:01,000 INFO x: a [request r-1]", *TRACE],
            id="records of the request with their tracebacks",
        ),
        pytest.param(
            ['{"time":"1","request_id":"r-1"}', '{"time":"2","request_id":"r-2"}'],
            ['{"time":"1","request_id":"r-1"}'],
            id="JSON lines",
        ),
        pytest.param(["plain r-1", "plain"], ["plain r-1"], id="a copy's own format"),
        pytest.param(["  File of another", *TRACE[:1]], TRACE[:1], id="a log that begins within"),
        pytest.param([], [], id="an empty log"),
    ],
)
def test_lines_about_a_request(lines: list[str], found: list[str]) -> None:
    assert request_lines(lines, "r-1") == found
