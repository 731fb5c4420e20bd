"""Rules of composite alarms, and suppressors of their actions."""

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.alarm import AlarmActions, AlarmState, AlarmStatus, CompositeAlarm
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.composite import (
    Constant,
    Expression,
    InState,
    Junction,
    Negation,
    RuleError,
    Suppression,
    find_cycle,
    find_suppression,
    is_true,
    list_children,
    parse,
    parse_alarm_name,
)

ALARM, OK, NO_DATA = AlarmState.ALARM, AlarmState.OK, AlarmState.INSUFFICIENT_DATA
ARN = "arn:aws:cloudwatch:us-west-2:123456789012:alarm:"


# The first three are the examples of PutCompositeAlarm.
@cases(
    "rule, states, expected",
    case("both", "ALARM(cpu) AND ALARM(disk)", {"cpu": ALARM, "disk": ALARM}, True),
    case("one", "ALARM(cpu) AND ALARM(disk)", {"cpu": ALARM, "disk": OK}, False),
    case("not", "ALARM(cpu) AND NOT ALARM(deploying)", {"cpu": ALARM, "deploying": OK}, True),
    case(
        "either, grouped",
        "(ALARM(cpu) OR ALARM(disk)) AND OK(network)",
        {"cpu": OK, "disk": ALARM, "network": OK},
        True,
    ),
    case("a constant alone", "TRUE", {}, True),
    case("words in small letters", "not FALSE", {}, True),
    case("AND binds more than OR", "TRUE OR TRUE AND FALSE", {}, True),
    case("unless grouped", "(TRUE OR TRUE) AND FALSE", {}, False),
    case("NOT binds more than OR", "NOT TRUE OR TRUE", {}, True),
    case("a quoted name", 'ALARM("my alarm (1)")', {"my alarm (1)": ALARM}, True),
    case("a quoted quote", r'ALARM("a\"b")', {'a"b': ALARM}, True),
    case("an unquoted blank", "ALARM( my alarm )", {"my alarm": ALARM}, True),
    case("an ARN", f'OK("{ARN}a b")', {"a b": OK}, True),
    case("an ARN without quotes", f"ALARM({ARN}a:b)", {"a:b": ALARM}, True),
    case("no data", "INSUFFICIENT_DATA(a)", {"a": NO_DATA}, True),
    case("an alarm that is gone is in no state", "OK(gone)", {}, False),
    case("a name that is a word of rules", "ALARM(TRUE)", {"TRUE": ALARM}, True),
    case("any white space", "TRUE\n AND\tTRUE  ", {}, True),
    case("needless parentheses", "(((TRUE)))", {}, True),
)
def test_rules_are_evaluated(rule: str, states: Mapping[str, AlarmState], expected: bool) -> None:
    assert is_true(parse(rule), states) is expected


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "   ",
        "AND",
        "ALARM()",
        'ALARM("")',
        'ALARM("  ")',
        "ALARM(a",
        "ALARM(a) ALARM(b)",
        "ALARM(a) AND",
        "(ALARM(a)",
        "ALARM(a))",
        "NOT",
        "XOR(a)",
        "ALARM a",
        "TRUEFALSE",
        "TRUE AND",
        "()",
        'ALARM("a)',
        "NOT " * 200 + "TRUE",
        "(" * 150 + "TRUE" + ")" * 150,
    ],
)
def test_rules_that_cannot_be_read_are_refused(rule: str) -> None:
    with pytest.raises(RuleError):
        parse(rule)


def test_a_rule_has_at_most_a_hundred_children_and_five_hundred_elements() -> None:
    assert len(list_children(parse(" OR ".join(f"ALARM(a{it})" for it in range(100))))) == 100
    with pytest.raises(RuleError, match="101 alarms"):
        parse(" OR ".join(f"ALARM(a{it})" for it in range(101)))
    assert is_true(parse(" OR ".join(["TRUE"] * 500)), {})
    with pytest.raises(RuleError, match="501 elements"):
        parse(" OR ".join(["TRUE"] * 501))
    # A pair of parentheses is one element (User Guide, "Creating a composite alarm").
    with pytest.raises(RuleError, match="502 elements"):
        parse(" OR ".join(["(TRUE)"] * 251))


def test_children_are_named_once_in_their_order() -> None:
    assert list_children(parse(f"ALARM(b) AND (OK(a) OR NOT OK(b)) AND ALARM({ARN}c)")) == (
        "b",
        "a",
        "c",
    )


def expressions() -> st.SearchStrategy[Expression]:
    names = st.text("ab: ()\"'\\é", min_size=1, max_size=6).filter(
        lambda it: it.strip() == it and not it.startswith("arn:")
    )
    leaves = st.builds(Constant, st.booleans()) | st.builds(
        InState, st.sampled_from(AlarmState), names
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Negation, inner)
            | st.builds(Junction, st.booleans(), st.lists(inner, min_size=2, max_size=3).map(tuple))
        ),
        max_leaves=12,
    )


def written(expression: Expression) -> str:
    if isinstance(expression, Constant):
        return str(expression.value).upper()
    if isinstance(expression, InState):
        name = expression.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'{expression.state.value}("{name}")'
    if isinstance(expression, Negation):
        return f"NOT ({written(expression.of)})"
    word = " AND " if expression.is_all else " OR "
    return "(" + word.join(f"({written(it)})" for it in expression.parts) + ")"


@given(expressions(), st.dictionaries(st.text("ab", max_size=2), st.sampled_from(AlarmState)))
def test_what_is_written_is_read_again(
    expression: Expression, states: dict[str, AlarmState]
) -> None:
    assert is_true(parse(written(expression)), states) == is_true(expression, states)


@given(st.text('ALRMOKTUEFSND()"\\ ab_', max_size=60))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    found: Expression | None = None
    with contextlib.suppress(RuleError):
        found = parse(text)
    assert found is None or is_true(found, {}) in (True, False)


def test_a_cycle_is_found_through_any_number_of_alarms() -> None:
    rules = {"b": ("c", "x"), "c": ("a",)}
    way = find_cycle("a", parse("ALARM(b)"), lambda it: rules.get(it, ()))
    assert way == ("a", "b", "c", "a")
    assert find_cycle("a", parse("ALARM(a)"), lambda _: ()) == ("a", "a")
    assert find_cycle("z", parse("ALARM(b)"), lambda it: rules.get(it, ())) == ()
    loop = {"b": ("c",), "c": ("b",)}
    assert find_cycle("z", parse("ALARM(b)"), lambda it: loop.get(it, ())) == ()


def test_an_alarm_is_known_by_name_or_arn() -> None:
    assert parse_alarm_name(ARN + "a:b/c d") == "a:b/c d"
    assert parse_alarm_name("plain") == "plain"


def composite(suppressor: str | None = "quiet", *, since: float = 100.0) -> CompositeAlarm:
    return CompositeAlarm(
        scope=Scope("123456789012", "us-west-2"),
        name="both",
        arn=ARN + "both",
        expression="TRUE",
        actions=AlarmActions(),
        status=AlarmStatus(state=ALARM, updated_at=since, transitioned_at=since),
        configured_at=0.0,
        suppressor=suppressor,
        suppressor_wait_s=60.0,
        suppressor_extension_s=30.0,
        given={},
    )


def quiet(state: AlarmState, since: float) -> AlarmStatus:
    return AlarmStatus(state=state, updated_at=since, transitioned_at=since)


# User Guide, "Suppressing composite alarm actions": the composite alarm alarms at 100.
@cases(
    "suppressor, now, expected",
    case("no suppressor is left", None, 100.0, None),
    case("the suppressor may follow", quiet(OK, 0.0), 159.0, Suppression("WaitPeriod", 160.0)),
    case("it did not within the wait period", quiet(OK, 0.0), 160.0, None),
    case("it did: nothing is done", quiet(ALARM, 130.0), 1e9, Suppression("Alarm", None)),
    case(
        "it ended: the alarm may end too",
        quiet(OK, 200.0),
        229.0,
        Suppression("ExtensionPeriod", 230.0),
    ),
    case("it did not within the extension", quiet(OK, 200.0), 230.0, None),
    case(
        "the longer of both periods counts",
        quiet(OK, 120.0),
        140.0,
        Suppression("WaitPeriod", 160.0),
    ),
    case("a clock that was set back holds nothing up", quiet(OK, 3700.0), 160.0, None),
    case("no data is not ALARM", quiet(NO_DATA, 0.0), 100.0, Suppression("WaitPeriod", 160.0)),
)
def test_actions_wait_for_a_suppressor(
    suppressor: AlarmStatus | None, now: float, expected: Suppression | None
) -> None:
    assert find_suppression(composite(), suppressor, now) == expected


def test_without_a_suppressor_actions_do_not_wait() -> None:
    assert find_suppression(composite(None), quiet(ALARM, 0.0), 100.0) is None
