"""Routes around generation: their description, request ids, the cache's contents, phases."""

import io
import logging
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import ask, config, fake, server

from hostelry.containers.lmi.http.app import REQUEST_ID, build_app, show_request_ids
from hostelry.containers.lmi.http.cache_routes import page_map
from hostelry.containers.lmi.http.server import ServerPhase
from hostelry.graph.step_report import STEPS_HEADER, parse_steps

NAME = "x-request-id"


def test_every_route_is_described() -> None:
    served = server()
    described = ask(served, "/openapi.json", method="GET").json["paths"]
    for route in build_app(served).routes:
        assert isinstance(route, Route)
        if route.path == "/openapi.json":
            continue
        path = route.path.replace(":path}", "}")
        methods = {it.lower() for it in (route.methods or set()) - {"HEAD"}}
        assert methods <= described[path].keys(), path


def test_statuses_that_a_deployment_changes_are_described() -> None:
    served = server(settings=config("throttle_error_http_code=430"))
    paths: dict[str, Any] = ask(served, "/openapi.json", method="GET").json["paths"]
    assert "430" in paths["/invocations"]["post"]["responses"]
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}


def test_the_names_in_a_path_are_described() -> None:
    paths = ask(server(), "/openapi.json", method="GET").json["paths"]
    names = paths["/models/{model}/adapters/{name}"]["delete"]["parameters"]
    assert [it["name"] for it in names] == ["model", "name"]
    assert "requestBody" in paths["/v1/responses"]["post"]


@cases(
    "given, kept",
    case("a client's own", "abc-1", True),
    case("one with a space", "a b", False),
    case("one that is too long", "a" * 129, False),
    case("an empty one", "", False),
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
    """The output of the server's loggers, with ids."""
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


@cases(
    "codes, max_cells, width, runs",
    case("no pool, no runs", [], 4, 1, []),
    case("a page is a cell", [0, 0, 1, 3], 4, 1, [[0, 2], [1, 1], [3, 1]]),
    case("a cell shows what most are", [1, 1, 0, 0, 0], 2, 3, [[1, 1], [0, 1]]),
    case("equal cells are one run", [7] * 10, 3, 4, [[7, 3]]),
)
def test_the_map(codes: list[int], max_cells: int, width: int, runs: list[list[int]]) -> None:
    found = page_map(array("H", codes).tobytes(), max_cells)
    assert found == {"pages_per_cell": width, "runs": runs}


def test_what_is_kept() -> None:
    served = server()
    fake(served).pinned.add("es")
    answer = ask(served, "/cache?limit=1", method="GET").json
    assert list(answer["adapters"]) == ["es"]
    assert answer["adapters"]["es"]["alias"] == "es"
    assert (answer["adapters"]["es"]["tier"], answer["loaded"]) == ("pool", 2)
    assert answer["pool"]["map"] == {"pages_per_cell": 1, "runs": [[0, 1], [1, 2], [3, 1]]}


@cases(
    "query, status, words",
    case("too many", "limit=1001", 400, "limit is 1001; it must be 0 to 1000"),
    case("fewer than none", "limit=-1", 400, "limit is -1"),
    case("no number", "limit=x", 400, "limit is x"),
    case("a model that is loading", "", 503, "is not ready"),
)
def test_refusals(query: str, status: int, words: str) -> None:
    served = server()
    if status == 503:
        served.phase = ServerPhase.LOADING
    answer = ask(served, f"/cache?{query}", method="GET")
    assert (answer.status, words in answer.text) == (status, True)


@cases(
    "stream, names",
    case("of a whole answer all three", False, {"queue", "prefill", "decode"}),
    case("of a stream what is over at its first token", True, {"queue", "prefill"}),
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
