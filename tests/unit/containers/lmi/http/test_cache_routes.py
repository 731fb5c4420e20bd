"""GET /cache, and the page map that it draws."""

from array import array

import pytest
from tests.unit.containers.lmi.tiny import ask, fake, server

from hostelry.containers.lmi.http.cache_routes import page_map
from hostelry.containers.lmi.http.server import ServerPhase


@pytest.mark.parametrize(
    ("codes", "max_cells", "width", "runs"),
    [
        pytest.param([], 4, 1, [], id="no pool, no runs"),
        pytest.param([0, 0, 1, 3], 4, 1, [[0, 2], [1, 1], [3, 1]], id="a page is a cell"),
        pytest.param([1, 1, 0, 0, 0], 2, 3, [[1, 1], [0, 1]], id="a cell shows what most are"),
        pytest.param([7] * 10, 3, 4, [[7, 3]], id="equal cells are one run"),
    ],
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


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        pytest.param("limit=1001", 400, "limit is 1001; it must be 0 to 1000", id="too many"),
        pytest.param("limit=-1", 400, "limit is -1", id="fewer than none"),
        pytest.param("limit=x", 400, "limit is x", id="no number"),
        pytest.param("", 503, "is not ready", id="a model that is loading"),
    ],
)
def test_refusals(query: str, status: int, words: str) -> None:
    served = server()
    if status == 503:
        served.phase = ServerPhase.LOADING
    answer = ask(served, f"/cache?{query}", method="GET")
    assert (answer.status, words in answer.text) == (status, True)
