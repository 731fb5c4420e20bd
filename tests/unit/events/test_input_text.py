"""Input of targets: values at places in an event become text."""

import json
from typing import Any

from tests.cases import case, cases

from hostelry.domain.event_rule import EventRule, RuleTarget
from hostelry.domain.scope import Scope
from hostelry.events.input_text import build_input, fill_template, value_at

RULE = EventRule(scope=Scope("1", "r"), name="arrivals", pattern="{}")
EVENT: dict[str, Any] = {"id": "7", "detail": {"key": 'a"b\\', "n": 5, "tags": ["x", "y"]}}


def target(**given: Any) -> RuleTarget:
    return RuleTarget(id="1", arn="a", given={}, **given)


@cases(
    "given, expected",
    case("the whole event", {}, EVENT),
    case("a constant", {"input": "7"}, 7),
    case("what is at a path", {"input_path": "$.detail.tags[1]"}, "y"),
    case("a quoted name", {"input_path": "$.detail['n']"}, 5),
    case("nothing there", {"input_path": "$.other"}, None),
    case(
        "values within quotes and without",
        {
            "template": '{"k": "x-<k>", "n": <n>, "all": <t>}',
            "template_paths": {"k": "$.detail.key", "n": "$.detail.n", "t": "$.detail.tags"},
        },
        {"k": 'x-a"b\\', "n": 5, "all": ["x", "y"]},
    ),
    case(
        "values that are not there",
        {"template": '{"k": "<k>", "n": <k>}', "template_paths": {"k": "$.no"}},
        {"k": "", "n": None},
    ),
    case(
        "predefined values",
        {"template": '["<aws.events.rule-name>", "<aws.events.event.ingestion-time>"]'},
        ["arrivals", "1970-01-01T00:00:09Z"],
    ),
    case(
        "the event, as JSON and as text",
        {"template": '[<aws.events.event>, "<aws.events.event.json>"]'},
        [{"id": "7"}, json.dumps(EVENT, separators=(",", ":"))],
    ),
)
def test_the_input_of_a_target(given: dict[str, Any], expected: Any) -> None:
    assert json.loads(build_input(RULE, target(**given), EVENT, 9.5)) == expected


def test_a_quote_that_is_escaped_ends_no_text() -> None:
    assert fill_template('"\\"<a>"', {"a": "b"}) == '"\\"b"'


def test_a_path_beyond_what_is_there_finds_nothing() -> None:
    assert value_at({"a": [1]}, "$.a[3]") is value_at({"a": 1}, "$.a.b")


def test_half_a_surrogate_pair_stays_escaped() -> None:
    """As text it could be neither stored nor sent."""
    event = {"id": "7", "detail": json.loads('{"t": "\\ud800"}')}
    text = build_input(RULE, target(input_path="$.detail"), event, 0.0)
    assert text.encode() == b'{"t":"\\ud800"}'
