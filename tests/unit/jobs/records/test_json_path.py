from typing import Any

import pytest

from hostelry.jobs.records.errors import RecordError
from hostelry.jobs.records.processing import parse_path

ROW = [10, 11, 12, 13, 14, 15, 16]
DOCUMENT = {"id": 7, "features": [1, 2], "SageMakerOutput": {"score": 0.5}}


@pytest.mark.parametrize(
    ("path", "value", "selected"),
    [
        pytest.param("$", ROW, ROW, id="the value itself"),
        pytest.param("$[1:]", ROW, ROW[1:], id="AWS's example, all but the first column"),
        pytest.param("$[0,5:]", ROW, [10, 15, 16], id="AWS's example, an index and a range"),
        pytest.param("$.features", DOCUMENT, [1, 2], id="AWS's example, a member"),
        pytest.param(
            "$['id','SageMakerOutput']",
            DOCUMENT,
            {"id": 7, "SageMakerOutput": {"score": 0.5}},
            id="AWS's example, members",
        ),
        pytest.param("$[0]", ROW, 10, id="one element"),
        pytest.param("$[-1]", ROW, 16, id="from the end"),
        pytest.param("$[ 0 , -2 ]", ROW, [10, 15], id="elements, with blanks"),
        pytest.param("$[:2]", ROW, [10, 11], id="up to"),
        pytest.param("$.SageMakerOutput.score", DOCUMENT, 0.5, id="a member's member"),
        pytest.param("$['features'][0]", DOCUMENT, 1, id="a member's element"),
        pytest.param("$.features[*]", DOCUMENT, [1, 2], id="all elements"),
        pytest.param("$.SageMakerOutput.*", DOCUMENT, [0.5], id="all members"),
        pytest.param("$[*].a", [{"a": 1}, {"a": 2}], [1, 2], id="a member of each"),
    ],
)
def test_a_path_selects(path: str, value: Any, selected: Any) -> None:
    assert parse_path(path).select(value) == selected


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        pytest.param("$[7]", ROW, "index 7 is outside of 7 elements", id="an index too large"),
        pytest.param("$[-8]", ROW, "index -8", id="an index before the first"),
        pytest.param("$[0,9:]", ROW, "index 9", id="a range that begins too late"),
        pytest.param("$.name", DOCUMENT, 'no member "name"', id="no such member"),
        pytest.param("$.id.x", DOCUMENT, "a number has no member", id="a number's member"),
        pytest.param("$[0]", DOCUMENT, "a JSON object has no elements", id="an object's element"),
        pytest.param("$..id", DOCUMENT, "not a JSONPath", id="a path outside of the subset"),
    ],
)
def test_what_a_path_does_not_find_is_named(path: str, value: Any, named: str) -> None:
    with pytest.raises(RecordError, match=named):
        parse_path(path).select(value)
