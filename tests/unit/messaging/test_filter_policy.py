"""Filter policies: which messages pass, and which policies are refused."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

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


@cases(
    "policy, attributes, passes",
    case("no condition", {}, {}, True),
    case("one of the values", {"shop": ["a", "example_corp"]}, TEXT, True),
    case("another case", {"shop": ["Example_corp"]}, TEXT, False),
    case("a missing attribute", {"shop": ["example_corp"]}, {}, False),
    case("a prefix", {"shop": [{"prefix": "ex"}]}, TEXT, True),
    case("a suffix", {"shop": [{"suffix": "corp"}]}, TEXT, True),
    case("another prefix", {"shop": [{"prefix": "corp"}]}, TEXT, False),
    case("any case", {"shop": [{"equals-ignore-case": "EXAMPLE_Corp"}]}, TEXT, True),
    case("anything but others", {"shop": [{"anything-but": ["a", "b"]}]}, TEXT, True),
    case("but itself", {"shop": [{"anything-but": "example_corp"}]}, TEXT, False),
    case("but a prefix", {"shop": [{"anything-but": {"prefix": "ex"}}]}, TEXT, False),
    case("anything but, and nothing", {"shop": [{"anything-but": "a"}]}, {}, False),
    case("is there", {"shop": [{"exists": True}]}, TEXT, True),
    case("should not be there", {"shop": [{"exists": False}]}, TEXT, False),
    case("is not there", {"shop": [{"exists": False}]}, {}, True),
    case("a number", {"price": [100]}, PRICE, True),
    case("a number is no text", {"price": ["100"]}, PRICE, False),
    case("an equal number", {"price": [{"numeric": ["=", 1e2]}]}, PRICE, True),
    case("in a range", {"price": [{"numeric": [">", 0, "<=", 100]}]}, PRICE, True),
    case("beyond a limit", {"price": [{"numeric": ["<", 100]}]}, PRICE, False),
    case("no number", {"price": [{"numeric": ["<", 100]}]}, TEXT, False),
    case("an item of an array", {"tags": ["football", "rugby"]}, LIST, True),
    case("a boolean of an array", {"tags": [True]}, LIST, True),
    case("1 is not true", {"tags": [1]}, LIST, False),
    case("no item may be it", {"tags": [{"anything-but": "rugby"}]}, LIST, False),
    case("every key", {"shop": ["example_corp"], "price": [1]}, {**TEXT, **PRICE}, False),
    case("one branch", {"$or": [{"shop": ["a"]}, {"price": [100]}]}, {**TEXT, **PRICE}, True),
    case("no branch", {"$or": [{"shop": ["a"]}, {"price": [1]}]}, PRICE, False),
    case("a network", {"ip": [{"cidr": "10.0.0.0/24"}]}, {"ip": ("String", "10.0.0.9")}, True),
    case("another", {"ip": [{"cidr": "10.0.0.0/24"}]}, {"ip": ("String", "10.0.1.9")}, False),
    case("a blob exists", {"b": [{"exists": True}]}, {"b": ("Binary", "AA==")}, True),
    case("a blob has no value", {"b": ["AA=="]}, {"b": ("Binary", "AA==")}, False),
)
def test_which_attributes_pass(
    policy: dict[str, Any], attributes: dict[str, tuple[str, str]], passes: bool
) -> None:
    read = read_policy(json.dumps(policy))
    assert passes_filter(read, ATTRIBUTE_SCOPE, attributes, "") is passes


@cases(
    "policy, body, passes",
    case("a nested key", {"a": {"b": ["x"]}}, '{"a": {"b": "x"}}', True),
    case("in an array", {"a": {"b": ["x"]}}, '{"a": [{"b": "y"}, {"b": "x"}]}', True),
    case("no object", {"a": {"b": ["x"]}}, '{"a": "x"}', False),
    case("null", {"a": [None]}, '{"a": null}', True),
    case("absent", {"a": [{"exists": False}]}, "{}", True),
    case("a body that is no JSON", {"a": ["x"]}, "no JSON", False),
    case("a body of brackets", {"a": ["x"]}, "[" * 100_000, False),
)
def test_which_bodies_pass(policy: dict[str, Any], body: str, passes: bool) -> None:
    read = read_policy(json.dumps(policy), BODY_SCOPE)
    assert passes_filter(read, BODY_SCOPE, {}, body) is passes


@cases(
    "text, reason",
    case("no JSON", "{", "parse"),
    case("brackets", "[" * 100_000, "parse"),
    case("no object", "[]", "object"),
    case("a value without an array", '{"a": "b"}', "object or an array"),
    case("an empty array", '{"a": []}', "Empty arrays"),
    case("nesting among attributes", '{"a": {"b": ["c"]}}', "nested"),
    case("an operator", '{"a": [{"like": "b"}]}', "Unrecognized match type like"),
    case("a prefix of a number", '{"a": [{"prefix": 1}]}', "must be a string"),
    case("half a range", '{"a": [{"numeric": ["<"]}]}', "one or two comparisons"),
    case("a range backwards", '{"a": [{"numeric": [">", 2, "<", 1]}]}', "Bottom"),
    case("a number beyond the limits", '{"a": [1e10]}', "between"),
    case("no number", '{"a": [NaN]}', "between"),
    case("no network", '{"a": [{"cidr": "10.0.0.0"}]}', "CIDR"),
    case("one branch", '{"$or": [{"a": ["b"]}]}', "at least two"),
    case("six keys", json.dumps({f"k{n}": ["v"] for n in range(6)}), "more than 5 keys"),
    case("512 ways", json.dumps({f"k{n}": list("abcdefgh") for n in range(3)}), "complex"),
    case("branches", json.dumps({"$or": [{f"k{n}": ["v"]} for n in range(5000)]}), "complex"),
)
def test_which_policies_are_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterPolicyError, match=reason):
        read_policy(text)


@cases(
    "conditions, value, passes",
    case("1 is 1.0", [1], 1.0, True),
    case("1 is not true", [1], True, False),
    case("true is not 1", [True], 1, False),
    case("a text is no number", ["1"], 1, False),
    case("null", [None], None, True),
    case("an object is not null", [None], {}, False),
    case("anything but 1, and 1.0", [{"anything-but": [1, "a"]}], 1.0, False),
    case("anything but 1, and true", [{"anything-but": [1, "a"]}], True, True),
    case("anything but, and no value", [{"anything-but": ["1"]}], [], False),
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
