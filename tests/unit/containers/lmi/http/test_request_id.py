"""The id of a request: in its response, and in what is logged meanwhile."""

import io
import logging
from collections.abc import Iterator

import pytest
from tests.unit.containers.lmi.tiny import ask, config, fake, server

from hostelry.containers.lmi.http.app import REQUEST_ID, show_request_ids

NAME = "x-request-id"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param("abc-1", True, id="a client's own"),
        pytest.param("a b", False, id="one with a space"),
        pytest.param("a" * 129, False, id="one that is too long"),
        pytest.param("", False, id="an empty one"),
    ],
)
def test_the_response_has_the_requests_id(given: str, kept: bool) -> None:
    answer = ask(server(), "/invocations", {"inputs": "a"}, headers={NAME: given})
    assert (answer.headers[NAME] == given) == kept
    assert answer.headers[NAME]


def test_the_gateways_id_is_kept_where_the_operator_named_another_header() -> None:
    served = server(settings=config("request_id_header_key=x-my-id"))
    by_gateway = ask(served, "/ping", method="GET", headers={NAME: "gateway-1"})
    assert by_gateway.headers["x-my-id"] == "gateway-1"
    both = {NAME: "gateway-1", "x-my-id": "own-1"}
    assert ask(served, "/ping", method="GET", headers=both).headers["x-my-id"] == "own-1"


def test_each_request_without_an_id_gets_one_of_its_own() -> None:
    served = server()
    ids = {ask(served, "/ping", method="GET").headers[NAME] for _ in range(3)}
    assert len(ids) == 3


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the server's loggers write, with ids."""
    root, written = logging.getLogger("hostelry.containers.lmi"), io.StringIO()
    handler = logging.StreamHandler(written)
    root.addHandler(handler)
    show_request_ids(root)
    yield written
    root.removeHandler(handler)


def test_lines_of_a_request_have_its_id(lines: io.StringIO) -> None:
    served = server()
    fake(served).fail_after = 1
    body = {"inputs": "a", "stream": True}
    ask(served, "/invocations", body, headers={NAME: "broken-1"})
    assert "a stream broke: the engine process ended unexpectedly requestId=broken-1" in (
        lines.getvalue()
    )
    assert REQUEST_ID.get() == ""
    logging.getLogger("hostelry.containers.lmi").warning("%d%%", 5)
    assert lines.getvalue().endswith("5%\n")
