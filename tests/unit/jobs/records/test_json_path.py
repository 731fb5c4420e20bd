from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.jobs.records.processing import parse_path
from hostelry.jobs.records.splitting import RecordError

ROW = [10, 11, 12, 13, 14, 15, 16]
DOCUMENT = {"id": 7, "features": [1, 2], "SageMakerOutput": {"score": 0.5}}


@cases(
    "path, value, selected",
    case("the value itself", "$", ROW, ROW),
    case("AWS's example, all but the first column", "$[1:]", ROW, ROW[1:]),
    case("AWS's example, an index and a range", "$[0,5:]", ROW, [10, 15, 16]),
    case("AWS's example, a member", "$.features", DOCUMENT, [1, 2]),
    case(
        "AWS's example, members",
        "$['id','SageMakerOutput']",
        DOCUMENT,
        {"id": 7, "SageMakerOutput": {"score": 0.5}},
    ),
    case("one element", "$[0]", ROW, 10),
    case("from the end", "$[-1]", ROW, 16),
    case("elements, with blanks", "$[ 0 , -2 ]", ROW, [10, 15]),
    case("up to", "$[:2]", ROW, [10, 11]),
    case("a member's member", "$.SageMakerOutput.score", DOCUMENT, 0.5),
    case("a member's element", "$['features'][0]", DOCUMENT, 1),
    case("all elements", "$.features[*]", DOCUMENT, [1, 2]),
    case("all members", "$.SageMakerOutput.*", DOCUMENT, [0.5]),
    case("a member of each", "$[*].a", [{"a": 1}, {"a": 2}], [1, 2]),
)
def test_a_path_selects(path: str, value: Any, selected: Any) -> None:
    assert parse_path(path).select(value) == selected


@cases(
    "path, value, named",
    case("an index too large", "$[7]", ROW, "index 7 is outside of 7 elements"),
    case("an index before the first", "$[-8]", ROW, "index -8"),
    case("a range that begins too late", "$[0,9:]", ROW, "index 9"),
    case("no such member", "$.name", DOCUMENT, 'no member "name"'),
    case("a number's member", "$.id.x", DOCUMENT, "a number has no member"),
    case("an object's element", "$[0]", DOCUMENT, "a JSON object has no elements"),
    case("a path outside of the subset", "$..id", DOCUMENT, "not a JSONPath"),
)
def test_what_a_path_does_not_find_is_named(path: str, value: Any, named: str) -> None:
    with pytest.raises(RecordError, match=named):
        parse_path(path).select(value)
