"""Filter policies: which messages pass, and which policies are refused."""

import json
from typing import Any

import pytest

from hostelry.messaging.filter_policy import (
    ATTRIBUTE_SCOPE,
    BODY_SCOPE,
    FilterPolicyError,
    passes_filter,
    read_policy,
)

MANY = 100_000
TEXT = {"shop": ("String", "example_corp")}
PRICE = {"price": ("Number", "100")}
LIST = {"tags": ("String.Array", '["rugby", 5, true]')}


@pytest.mark.parametrize(
    ("policy", "attributes", "passes"),
    [
        pytest.param({}, {}, True, id="no condition"),
        pytest.param({"shop": ["a", "example_corp"]}, TEXT, True, id="one of the values"),
        pytest.param({"shop": ["Example_corp"]}, TEXT, False, id="another case"),
        pytest.param({"shop": ["example_corp"]}, {}, False, id="a missing attribute"),
        pytest.param({"shop": [{"prefix": "ex"}]}, TEXT, True, id="a prefix"),
        pytest.param({"shop": [{"suffix": "corp"}]}, TEXT, True, id="a suffix"),
        pytest.param({"shop": [{"prefix": "corp"}]}, TEXT, False, id="another prefix"),
        pytest.param({"shop": [{"equals-ignore-case": "EXAMPLE_Corp"}]}, TEXT, True, id="any case"),
        pytest.param(
            {"shop": [{"anything-but": ["a", "b"]}]}, TEXT, True, id="anything but others"
        ),
        pytest.param({"shop": [{"anything-but": "example_corp"}]}, TEXT, False, id="but itself"),
        pytest.param(
            {"shop": [{"anything-but": {"prefix": "ex"}}]}, TEXT, False, id="but a prefix"
        ),
        pytest.param({"shop": [{"anything-but": "a"}]}, {}, False, id="anything but, and nothing"),
        pytest.param({"shop": [{"exists": True}]}, TEXT, True, id="is there"),
        pytest.param({"shop": [{"exists": False}]}, TEXT, False, id="should not be there"),
        pytest.param({"shop": [{"exists": False}]}, {}, True, id="is not there"),
        pytest.param({"price": [100]}, PRICE, True, id="a number"),
        pytest.param({"price": ["100"]}, PRICE, False, id="a number is no text"),
        pytest.param({"price": [{"numeric": ["=", 1e2]}]}, PRICE, True, id="an equal number"),
        pytest.param({"price": [{"numeric": [">", 0, "<=", 100]}]}, PRICE, True, id="in a range"),
        pytest.param({"price": [{"numeric": ["<", 100]}]}, PRICE, False, id="beyond a limit"),
        pytest.param({"price": [{"numeric": ["<", 100]}]}, TEXT, False, id="no number"),
        pytest.param({"tags": ["football", "rugby"]}, LIST, True, id="an item of an array"),
        pytest.param({"tags": [True]}, LIST, True, id="a boolean of an array"),
        pytest.param({"tags": [1]}, LIST, False, id="1 is not true"),
        pytest.param({"tags": [{"anything-but": "rugby"}]}, LIST, False, id="no item may be it"),
        pytest.param(
            {"shop": ["example_corp"], "price": [1]}, {**TEXT, **PRICE}, False, id="every key"
        ),
        pytest.param(
            {"$or": [{"shop": ["a"]}, {"price": [100]}]}, {**TEXT, **PRICE}, True, id="one branch"
        ),
        pytest.param({"$or": [{"shop": ["a"]}, {"price": [1]}]}, PRICE, False, id="no branch"),
        pytest.param(
            {"ip": [{"cidr": "10.0.0.0/24"}]}, {"ip": ("String", "10.0.0.9")}, True, id="a network"
        ),
        pytest.param(
            {"ip": [{"cidr": "10.0.0.0/24"}]}, {"ip": ("String", "10.0.1.9")}, False, id="another"
        ),
        pytest.param(
            {"b": [{"exists": True}]}, {"b": ("Binary", "AA==")}, True, id="a blob exists"
        ),
        pytest.param({"b": ["AA=="]}, {"b": ("Binary", "AA==")}, False, id="a blob has no value"),
    ],
)
def test_which_attributes_pass(
    policy: dict[str, Any], attributes: dict[str, tuple[str, str]], passes: bool
) -> None:
    read = read_policy(json.dumps(policy))
    assert passes_filter(read, ATTRIBUTE_SCOPE, attributes, "") is passes


@pytest.mark.parametrize(
    ("policy", "body", "passes"),
    [
        pytest.param({"a": {"b": ["x"]}}, '{"a": {"b": "x"}}', True, id="a nested key"),
        pytest.param(
            {"a": {"b": ["x"]}}, '{"a": [{"b": "y"}, {"b": "x"}]}', True, id="in an array"
        ),
        pytest.param({"a": {"b": ["x"]}}, '{"a": "x"}', False, id="no object"),
        pytest.param({"a": [None]}, '{"a": null}', True, id="null"),
        pytest.param({"a": [{"exists": False}]}, "{}", True, id="absent"),
        pytest.param({"a": ["x"]}, "no JSON", False, id="a body that is no JSON"),
        pytest.param({"a": ["x"]}, "[" * 100_000, False, id="a body of brackets"),
    ],
)
def test_which_bodies_pass(policy: dict[str, Any], body: str, passes: bool) -> None:
    read = read_policy(json.dumps(policy), BODY_SCOPE)
    assert passes_filter(read, BODY_SCOPE, {}, body) is passes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("{", "parse", id="no JSON"),
        pytest.param("[" * 100_000, "parse", id="brackets"),
        pytest.param("[]", "object", id="no object"),
        pytest.param('{"a": "b"}', "object or an array", id="a value without an array"),
        pytest.param('{"a": []}', "Empty arrays", id="an empty array"),
        pytest.param('{"a": {"b": ["c"]}}', "nested", id="nesting among attributes"),
        pytest.param('{"a": [{"like": "b"}]}', "Unrecognized match type like", id="an operator"),
        pytest.param('{"a": [{"prefix": 1}]}', "must be a string", id="a prefix of a number"),
        pytest.param('{"a": [{"numeric": ["<"]}]}', "one or two comparisons", id="half a range"),
        pytest.param('{"a": [{"numeric": [">", 2, "<", 1]}]}', "Bottom", id="a range backwards"),
        pytest.param('{"a": [1e10]}', "between", id="a number beyond the limits"),
        pytest.param('{"a": [NaN]}', "between", id="no number"),
        pytest.param('{"a": [{"cidr": "10.0.0.0"}]}', "CIDR", id="no network"),
        pytest.param('{"$or": [{"a": ["b"]}]}', "at least two", id="one branch"),
        pytest.param(
            json.dumps({f"k{n}": ["v"] for n in range(6)}), "more than 5 keys", id="six keys"
        ),
        pytest.param(
            json.dumps({f"k{n}": list("abcdefgh") for n in range(3)}), "complex", id="512 ways"
        ),
        pytest.param(
            json.dumps({"$or": [{f"k{n}": ["v"]} for n in range(5000)]}), "complex", id="branches"
        ),
    ],
)
def test_which_policies_are_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterPolicyError, match=reason):
        read_policy(text)


@pytest.mark.parametrize(
    ("conditions", "value", "passes"),
    [
        pytest.param([1], 1.0, True, id="1 is 1.0"),
        pytest.param([1], True, False, id="1 is not true"),
        pytest.param([True], 1, False, id="true is not 1"),
        pytest.param(["1"], 1, False, id="a text is no number"),
        pytest.param([None], None, True, id="null"),
        pytest.param([None], {}, False, id="an object is not null"),
        pytest.param([{"anything-but": [1, "a"]}], 1.0, False, id="anything but 1, and 1.0"),
        pytest.param([{"anything-but": [1, "a"]}], True, True, id="anything but 1, and true"),
        pytest.param([{"anything-but": ["1"]}], [], False, id="anything but, and no value"),
    ],
)
def test_values_are_equal_as_json_has_them(conditions: list[Any], value: Any, passes: bool) -> None:
    policy = read_policy(json.dumps({"a": conditions}), BODY_SCOPE)
    assert passes_filter(policy, BODY_SCOPE, {}, json.dumps({"a": value})) is passes


def test_a_long_list_and_many_values_are_compared_in_linear_time() -> None:
    """Each with each would be several thousand million comparisons."""
    policy = read_policy(json.dumps({"a": [{"anything-but": list(range(30_000))}]}), BODY_SCOPE)
    body = json.dumps({"a": [-1] * MANY})
    assert passes_filter(policy, BODY_SCOPE, {}, body)


def test_filtering_asks_between_conditions_whether_it_may_go_on() -> None:
    class TooLongError(Exception):
        pass

    def stop() -> None:
        raise TooLongError

    policy = read_policy(json.dumps({"a": [{"prefix": "a"}]}), BODY_SCOPE)
    with pytest.raises(TooLongError):
        passes_filter(policy, BODY_SCOPE, {}, json.dumps({"a": ["b"]}), stop)
