"""Documents of graphs are refused, or give a plan that ends for any answers of its steps."""

from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import mutated_text

from hostelry.graph.check import build_plan
from hostelry.graph.progress import Act, GraphState, ReadyStep, StepOutcome, next_steps
from hostelry.graph.settle import apply_rule, settle
from hostelry.graph.steps import CacheAction, GraphDocumentError, GraphPlan, StepFault

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "graph"
DOCUMENTS = (
    *(path.read_text() for path in sorted(EXAMPLES.glob("*/graph.yaml"))),
    "output: a\nsteps:\n  a: {scatter: {each: input.rows, call: {endpoint: e}, at_least: 0}}\n",
    "output: a\nsteps:\n  a: {gather: {of: b, by: max, score: p, value: '@'}}\n"
    "  b: {scatter: {to: [c, d], at_least: 2}}\n  c: {call: {endpoint: e, accept: text/csv}}\n"
    "  d: {map: 'sort_by(input.a, &b)[?x > `1`].y | [0]', on_error: default, default: []}\n",
)
WORDS = (
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "'",
        '"',
        "&x",
        "*x",
        "!!str",
        "~",
        "1e999",
        "-",
        "@",
        "`",
        "|",
    ),
    *(
        "?",
        "\n",
        "  ",
        "\x00",
        "\u00e9",
        "<<: ",
        "input",
        "answer",
        "both",
        "true",
        "0x1",
        "9" * 30,
    ),
    *("on_error: drop", "default: {}", "call: {}", "map: []", "scatter: []", "cascade: []"),
    *("(" * 60, "[*]" * 60, "a|" * 60, "rows.", "length(", "[0]", "mean", "majority", "stack"),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1.5,
        "x",
        "",
        [],
        {},
        [[0.9, 0.1]],
        [1, "x"],
        {"rows": [1, 2], "model": "bayes"},
    ),
    *({"p": 0.3}, b"bytes", [[1], [2, 3]], 1 << 80),
)


def test_a_document_is_a_plan_that_ends_or_is_refused(cases: Cases) -> None:
    for random in cases(3_000):
        text = mutated_text(random.choice(DOCUMENTS), random, WORDS)
        try:
            plan = build_plan(text)
        except GraphDocumentError:
            continue
        assert ends(plan, random)


def ends(plan: GraphPlan, random: Random) -> bool:
    """Whether a call gives a result."""
    state = GraphState({"input": StepOutcome(value=random.choice(VALUES))})
    for _ in range(1000):
        found = next_steps(plan, state)
        if found.result is not None:
            return True
        for ready in found.ready:
            carry_out(plan, state, ready, random)
    return False


def carry_out(plan: GraphPlan, state: GraphState, ready: ReadyStep, random: Random) -> None:
    """A step's outcome: by its own rules, or by chance."""
    action = plan.steps[ready.name].action
    if ready.act is Act.LOCAL:
        settle(plan, state, ready)
    elif ready.act is Act.LOOK_UP:
        state.choices[ready.name] = b"key"
    elif isinstance(action, CacheAction):
        state.outcomes[ready.name] = state.outcomes[action.of]
    elif random.random() < 0.3:
        fault = StepFault(step=ready.name, reason="by chance", status=424)
        state.outcomes[ready.key] = apply_rule(plan.steps[ready.name], fault)
    else:
        state.outcomes[ready.key] = StepOutcome(value=random.choice(VALUES))
