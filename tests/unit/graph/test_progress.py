"""Steps that follow outcomes, and the result of the call."""

import re
from collections.abc import Mapping
from typing import Any

from tests.cases import case, cases

from hostelry.graph.check import build_plan
from hostelry.graph.progress import Act, GraphState, StepOutcome, next_steps
from hostelry.graph.settle import apply_rule, find_input, settle
from hostelry.graph.steps import GraphPlan, StepFault

FAILS = object()


def run(text: str, request: Any, answers: Mapping[str, Any]) -> tuple[StepOutcome, list[str]]:
    """The result of a graph whose calls answer `answers`, and the calls that were made."""
    plan = build_plan(text)
    state = GraphState({"input": StepOutcome(value=request)})
    calls: list[str] = []
    for _ in range(200):
        found = next_steps(plan, state)
        if found.result is not None:
            return found.result, calls
        assert found.ready, "it waits for nothing"
        for ready in found.ready:
            carry_out(plan, state, ready, answers, calls)
    raise AssertionError("no end")


def carry_out(
    plan: GraphPlan, state: GraphState, ready: Any, answers: Mapping[str, Any], calls: list[str]
) -> None:
    if ready.act is Act.LOCAL:
        settle(plan, state, ready)
    elif ready.act is Act.LOOK_UP:
        state.choices[ready.name] = "key"
    elif ready.act is Act.STORE:
        action: Any = plan.steps[ready.name].action
        state.outcomes[ready.name] = state.outcomes[action.of]
    else:
        calls.append(ready.key)
        given = find_input(plan, state, ready).value
        answer = answers[ready.name]
        answer = answer(given) if callable(answer) else answer
        if answer is FAILS:
            fault = StepFault(step=ready.name, reason="it is broken", status=424)
            state.outcomes[ready.key] = apply_rule(plan.steps[ready.name], fault)
        else:
            state.outcomes[ready.key] = StepOutcome(value=answer)


def graph(steps: str, output: str = "answer") -> str:
    missing = [it for it in "abc" if f"  {it}:" not in steps and re.search(rf"\b{it}\b", steps)]
    calls = "\n".join(f"  {name}: {{call: {{endpoint: {name}}}}}" for name in missing)
    return f"output: {output}\nsteps:\n{steps}\n{calls}\n"


def scatter(gather: str, a: str = "", b: str = "") -> str:
    return graph(
        f"  answer: {{gather: {{of: all, {gather}}}}}\n"
        "  all: {scatter: [a, b, c]}\n"
        f"  a: {{call: {{endpoint: a}}{a}}}\n"
        f"  b: {{call: {{endpoint: b}}{b}}}"
    )


@cases(
    "gather, answers, value",
    case("the mean of numbers", "by: mean", (1, 2, 6), 3.0),
    case("the mean of lists is by element", "by: mean", ([[1, 2]], [[3, 4]], [[5, 9]]),
        [[3.0, 5.0]]),
    case("the weighted mean", "by: weighted_mean, weights: {a: 1, b: 1, c: 2}", (1, 3, 6), 4.0),
    case("the majority", "by: majority", ("orange", "apple", "apple"), "apple"),
    case("a vote on each element; of several the first branch's", "by: majority",
        (["x", "y"], ["x", "z"], ["w", "q"]), ["x", "y"]),
    case("true and 1 are different answers", "by: majority", (True, 1, 1), 1),
    case("the largest", "by: max", ([1, 9], [5, 2], [3, 3]), [5.0, 9.0]),
    case("the value of the best score", "by: max, score: p, value: label",
        ({"p": 0.2, "label": "x"}, {"p": 0.7, "label": "y"}, {"p": 0.1, "label": "z"}), "y"),
    case("a list of the answers", "by: stack", (1, "x", None), [1, "x", None]),
    case("one list", "by: concatenate", ([1], [2, 3], []), [1, 2, 3]),
    case("one text", "by: concatenate", ("a", "b", "c"), "abc"),
    case("a part of each answer", "by: mean, value: out.p", ({"out": {"p": 1}},) * 3, 1.0),
    case("shapes differ", "by: mean", (1, [2], 3), "b answered 1 and a one number"),
    case("no numbers", "by: mean", (1, "x", 3), "b answered no numbers: 'x'"),
    case("uneven lists", "by: mean", ([[1], [2, 3]], 1, 1), "a answered a list of uneven lists"),
    case("votes on different elements", "by: majority", ([1], 2, [3]),
        "b answered another number of elements than a"),
    case("no list", "by: concatenate", ([1], {}, [3]), "b answered no list: {}"),
    case("no score", "by: max, score: p", ({"p": "x"}, {}, {}), "the score of a is no number: 'x'"),
)  # fmt: skip
def test_answers_are_gathered(gather: str, answers: tuple[Any, ...], value: Any) -> None:
    result, calls = run(scatter(gather), {}, dict(zip("abc", answers, strict=True)))
    found = result.fault.text.removeprefix("step answer: ") if result.fault else result.value
    assert (type(found), found) == (type(value), value)
    assert calls == ["a", "b", "c"]


@cases(
    "a, b, gather, value",
    case("a failure fails the call", "", "", "by: mean", "step b: it is broken"),
    case("a dropped branch is left out", "", ", on_error: drop", "by: mean", 2.0),
    case("the weights of the others count", "", ", on_error: drop",
        "by: weighted_mean, weights: {a: 3, b: 9, c: 1}", 1.5),
    case("no weight is left", "", ", on_error: drop",
        "by: weighted_mean, weights: {a: 0, b: 9, c: 0}",
        "step answer: the weights of the branches that answered are 0: a, c"),
    case("a default takes the place of the answer", "", ", on_error: default, default: 8",
        "by: mean", 4.0),
)  # fmt: skip
def test_a_failure_counts_by_the_steps_rule(a: str, b: str, gather: str, value: Any) -> None:
    result, _ = run(scatter(gather, a, b), {}, {"a": 1, "b": FAILS, "c": 3})
    assert (result.fault.text if result.fault else result.value) == value


def test_too_few_answers_of_a_scatter_are_a_failure() -> None:
    text = graph(
        "  answer: {gather: {of: all, by: mean}}\n  all: {scatter: {to: [a, b], at_least: 2}}\n"
        "  a: {call: {endpoint: a}, on_error: drop}"
    )
    result, _ = run(text, {}, {"a": FAILS, "b": 1})
    assert result.fault == StepFault(
        step="all", reason="1 of 2 branches answered; at least 2 must", status=424
    )


SWITCH = graph(
    "  answer: {switch: {by: kind.label, cases: {orange: a, apple: b}, otherwise: c}}\n"
    "  kind: {call: {endpoint: kind}}"
)


@cases(
    "label, called",
    case("one case", "orange", "a"),
    case("another case", "apple", "b"),
    case("otherwise", None, "c"),
)
def test_only_the_chosen_step_runs(label: Any, called: str) -> None:
    answers = {"kind": {"label": label}, "a": "A", "b": "B", "c": "C"}
    result, calls = run(SWITCH, {}, answers)
    assert (result.value, calls) == (called.upper(), ["kind", called])


def test_a_switch_without_its_case_names_it() -> None:
    text = graph("  answer: {switch: {by: input.n, cases: {1: a}}}")
    result, calls = run(text, {"n": 2}, {})
    assert result.fault is not None
    assert "no case '2', and no otherwise; cases: 1" in result.fault.text
    assert calls == []


CASCADE = graph(
    "  answer: {cascade: [{step: a, enough: 'p > `0.8`'}, "
    "{step: b, enough: 'p > `0.8`'}, {step: c}]}\n  a: {call: {endpoint: a}, on_error: drop}"
)


@cases(
    "answers, value, called",
    case("the cheap one is sure", {"a": {"p": 0.9}}, {"p": 0.9}, ["a"]),
    case("the second one is sure", {"a": {"p": 0.1}, "b": {"p": 0.95}}, {"p": 0.95}, ["a", "b"]),
    case("the last one is always taken", {"a": {"p": 0.1}, "b": {"p": 0.2}, "c": "C"}, "C",
        ["a", "b", "c"]),
    case("a dropped one is unsure", {"a": FAILS, "b": {"p": 0.95}}, {"p": 0.95}, ["a", "b"]),
    case("a failure fails the call", {"a": {"p": 0.1}, "b": FAILS}, "step b: it is broken",
        ["a", "b"]),
    case("a condition that has no truth", {"a": {}},
        "step answer: p > `0.8` is None, not true or false", ["a"]),
)  # fmt: skip
def test_a_cascade_ends_at_the_first_answer_that_is_enough(
    answers: dict[str, Any], value: Any, called: list[str]
) -> None:
    result, calls = run(CASCADE, {}, answers)
    assert (result.fault.text if result.fault else result.value) == value
    assert calls == called


def test_each_item_of_a_list_is_a_call() -> None:
    text = graph(
        "  answer: {gather: {of: all, by: stack}}\n"
        "  all: {scatter: {each: input.texts, call: {endpoint: e}}, on_error: drop}"
    )
    answers = {"all": lambda given: FAILS if given == "bad" else given.upper()}
    result, calls = run(text, {"texts": ["x", "bad", "y"]}, answers)
    assert (result.value, calls) == (["X", "Y"], ["all[0]", "all[1]", "all[2]"])


@cases(
    "texts, reason",
    case("no list", "x", "input.texts is no list"),
    case("too many items", ["x"] * 257, "input.texts has 257 items; at most 256"),
)
def test_items_are_a_list_of_bounded_length(texts: Any, reason: str) -> None:
    text = graph("  answer: {scatter: {each: input.texts, call: {endpoint: e}}}")
    result, calls = run(text, {"texts": texts}, {})
    assert result.fault is not None
    assert reason in result.fault.text
    assert calls == []


def test_steps_of_a_diamond_run_once() -> None:
    text = graph(
        "  answer: {map: '[b, c]'}\n  a: {call: {endpoint: a}}\n"
        "  b: {call: {endpoint: b}, input: a}\n  c: {call: {endpoint: c}, input: a}"
    )
    result, calls = run(text, 1, {"a": lambda it: it + 1, "b": lambda it: it * 2, "c": str})
    assert (result.value, calls) == ([4, "2"], ["a", "b", "c"])


@cases(
    "steps, last",
    case("a call", "  answer: {call: {endpoint: e}}", {"answer"}),
    case("the chosen step of a switch",
        "  answer: {switch: {by: input, cases: {x: a}, otherwise: b}}", {"b"}),
    case("not a step of a cascade before its last",
        "  answer: {cascade: [{step: a, enough: p}, {step: b}]}", set()),
    case("not a step that a map reads", "  answer: {map: a}", set()),
)  # fmt: skip
def test_the_last_step_is_known_when_it_begins(steps: str, last: set[str]) -> None:
    plan = build_plan(graph(steps))
    state = GraphState({"input": StepOutcome(value={})})
    while not (calls := [it for it in next_steps(plan, state).ready if it.act is Act.CALL]):
        for ready in next_steps(plan, state).ready:
            settle(plan, state, ready)
    assert {it.name for it in calls if it.is_last} == last
