"""Documents become plans, or faults that name step and field."""

import pytest

from hostelry.graph.check import build_plan
from hostelry.graph.content import ValueType
from hostelry.graph.expression import GraphExpressionError, read_expression
from hostelry.graph.steps import GraphDocumentError

GOOD = """
output: answer
deadline_s: 20
steps:
  answer: {gather: {of: both, by: weighted_mean, weights: {ridge: 1, forest: 3}}}
  both: {scatter: [ridge, forest]}
  rows: {map: "input.instances[*].[a, b]"}
  ridge: {call: {endpoint: e, component: ridge}, input: rows, on_error: drop}
  forest: {call: {endpoint: e, component: forest}, input: rows, timeout_s: 3}
"""


def one(step: str, extra: str = "") -> str:
    return f"output: answer\nsteps:\n  answer: {step}\n{extra}"


CALL = "{call: {endpoint: e}}"
TEXT_CALL = "  text: {call: {endpoint: e, accept: text/plain}}\n"


def test_a_plan_has_each_step_behind_those_it_needs() -> None:
    plan = build_plan(GOOD)
    order = list(plan.steps)
    assert order.index("rows") < order.index("ridge") < order.index("both") < order.index("answer")
    assert plan.deadline_s == 20
    assert [it.title for it in plan.targets] == [
        "component ridge of endpoint e", "component forest of endpoint e",
    ]  # fmt: skip
    assert plan.steps["rows"].type is ValueType.LIST


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "graph.yaml has no keys", id="nothing"),
        pytest.param("output: a\nsteps: {a: &x {map: input}, b: *x}", "anchors and aliases",
                     id="an anchor"),
        pytest.param("output: a\noutput: b\nsteps: {}", "given twice (line 2)", id="a key twice"),
        pytest.param("output: a\nsteps: !!str {}", "tags are refused", id="a tag"),
        pytest.param("output: a\nsteps: " + "[" * 99, "nested more than 32 deep", id="depth"),
        pytest.param("output: a\nsteps: {}", "field steps: there is none", id="no steps"),
        pytest.param("output: a\nsteps: {a: {map: input}}\nretries: 3", "unknown field `retries`",
                     id="an unknown key of the document"),
        pytest.param(one("{call: {endpoint: e, retry: 3}}"),
                     "step answer, field call: Object contains unknown field `retry`",
                     id="an unknown key of a step"),
        pytest.param(one("{call: {endpoint: 3}}"), "step answer, field call.endpoint: Expected",
                     id="a value of another type"),
        pytest.param(one("{input: rows}"), "step answer: needs one of call, map", id="no kind"),
        pytest.param(one("{map: input, call: {endpoint: e}}"), "has call and map", id="two kinds"),
        pytest.param(one(CALL, "  in-put: {map: input}"), "step in-put: a name has letters",
                     id="a name that is no name"),
        pytest.param(one("{call: {endpoint: e}, input: rows}"),
                     "step answer, field input: there is no step rows", id="a missing input"),
        pytest.param(one("{call: {component: c}}"), "field call.endpoint: it is missing",
                     id="a missing target"),
        pytest.param(one("{call: {endpoint: e, container: c, component: d}}"),
                     "field call.component: it goes with neither variant, model nor container",
                     id="a container and a component"),
        pytest.param(one("{call: {endpoint: 'a b'}}"), "field call.endpoint: 'a b' is not a name",
                     id="a name that no endpoint can have"),
        pytest.param(one("{scatter: [a, b]}", f"  a: {CALL}"),
                     "step answer, field scatter: there is no step b", id="a missing branch"),
        pytest.param(one("{call: {endpoint: e}, input: answer}"),
                     "step answer: it needs itself: answer needs answer", id="itself"),
        pytest.param(one("{map: a.x}", "  a: {map: b.x}\n  b: {map: a.x}"),
                     "it needs itself", id="a cycle of two"),
        pytest.param(one(CALL, f"  other: {CALL}"), "step other: no step uses it",
                     id="a step that nothing uses"),
        pytest.param(one("{map: 'text.label'}", TEXT_CALL),
                     "step answer, field map: the field label needs an object, and there is a text",
                     id="a field of a text"),
        pytest.param(one("{map: 'length(input, input)'}"), "length() takes 1 arguments",
                     id="a function with too many arguments"),
        pytest.param(one("{map: 'size(input)'}"), "there is no function size()",
                     id="a function that is not there"),
        pytest.param(one("{map: 'input > `0.8x`'}"), "deprecated string literal",
                     id="a literal that is no JSON"),
        pytest.param(one("{map: 'input" + " | [@, @]" * 6 + "'}"),
                     "field map: it can repeat a value 64 times; at most 32",
                     id="a row of pairs, which doubles each time"),
        pytest.param(one("{map: 'input" + " | [@] | [[0], [-1]]" * 6 + "'}"),
                     "it can repeat a value 64 times", id="the first and the last, which are one"),
        pytest.param(one("{map: '" + "to_string([" * 6 + "input" + "])" * 6 + "'}"),
                     "it can repeat a value 64 times", id="texts in texts, whose marks double"),
        pytest.param(one("{map: 'map(&[@, @], input)" + "[].[@, @]" * 5 + "'}"),
                     "it can repeat a value 64 times", id="pairs of each element"),
        pytest.param(one("{map: '[m, m, m, m, m, m]'}",
                         "  m: {map: '[input, input, input, input, input, input]'}\n"),
                     "step answer, field map: it can repeat a value 36 times",
                     id="copies of copies, of another step"),
        pytest.param(one("{map: '@'}"), "it stands for every step", id="the whole scope"),
        pytest.param(one("{map: 'input['}"), "is no JMESPath expression", id="half an expression"),
        pytest.param(one("{call: {endpoint: e}, input: png}",
                         "  png: {call: {endpoint: e, accept: image/png}}"),
                     "field input: bytes cannot be sent as application/json", id="bytes as JSON"),
        pytest.param(one("{gather: {of: both, by: mean}}",
                         "  both: {scatter: [text]}\n" + TEXT_CALL),
                     "field gather.by: text is a text, which has no numbers",
                     id="the mean of texts"),
        pytest.param(one("{gather: {of: a, by: mean}}", f"  a: {CALL}"),
                     "field gather.of: a is no scatter", id="a gather of no scatter"),
        pytest.param(one("{gather: {of: both, by: weighted_mean, weights: {a: 1}}}",
                         f"  both: {{scatter: [a, b]}}\n  a: {CALL}\n  b: {CALL}"),
                     "field gather.weights: they are of a; both has a, b", id="a missing weight"),
        pytest.param(one("{cascade: [{step: a}, {step: b}]}", f"  a: {CALL}\n  b: {CALL}"),
                     "field cascade[0].enough: it is missing", id="a cascade that never goes on"),
        pytest.param(one("{call: {endpoint: e}, on_error: default}"), "field default",
                     id="no default"),
        pytest.param(one("{call: {endpoint: e, accept: text/csv}, on_error: default, default: 3}"),
                     "field default: it is a number, and the step's is a list",
                     id="a default of another type"),
        pytest.param(one("{scatter: [a], on_error: drop}", f"  a: {CALL}"),
                     "field on_error: it has no meaning for scatter", id="a field without meaning"),
        pytest.param(one("{map: {function: os.system}}"), "field map.function",
                     id="a function without a module"),
        pytest.param(one("{cache: {of: a, ttl_s: 0}}", f"  a: {CALL}"), "field cache.ttl_s",
                     id="no time to live"),
        pytest.param(one(CALL) + "deadline_s: 0\n", "field deadline_s", id="no time"),
    ],
)  # fmt: skip
def test_a_fault_names_step_and_field(text: str, fault: str) -> None:
    with pytest.raises(GraphDocumentError) as caught:
        build_plan(text)
    assert fault in str(caught.value)


def test_parts_that_do_not_overlap_are_no_copies() -> None:
    fields = ", ".join(f"f{number}: input.f{number}" for number in range(60))
    items = ", ".join(f"input.rows[{number}]" for number in range(60))
    plan = build_plan(
        "output: answer\nsteps:\n  answer: {map: '[fields, items, length(items), `1`]'}\n"
        f"  fields: {{map: '{{{fields}}}'}}\n  items: {{map: '[{items}]'}}\n"
    )
    assert plan.output == "answer"


def test_a_join_makes_no_product_of_two_values() -> None:
    expression = read_expression("join(input.glue, input.texts)")
    assert expression.value({"input": {"glue": "-", "texts": ["a", "b"]}}) == "a-b"
    rows = {"glue": ", ", "texts": ["x" * 1000] * 2000}
    assert len(expression.value({"input": rows})) == 2_003_998
    with pytest.raises(GraphExpressionError, match="make 32004000 characters; at most 1048576"):
        expression.value({"input": {"glue": "-" * 8_000, "texts": ["x"] * 4_000}})


def test_all_faults_are_reported_at_once() -> None:
    text = one("{call: {endpoint: e}, input: gone}", "  b: {call: {component: c}}")
    with pytest.raises(GraphDocumentError) as caught:
        build_plan(text)
    assert [(it.step, it.field) for it in caught.value.faults] == [
        ("b", "call.endpoint"), ("answer", "input"),
    ]  # fmt: skip


def test_words_that_yaml_takes_for_others_are_cases() -> None:
    text = one(
        "{switch: {by: input.sure, cases: {true: a, no: b, 1: c}}}",
        "".join(f"  {name}: {CALL}\n" for name in "abc"),
    )
    action = build_plan(text).steps["answer"].action
    assert getattr(action, "cases", None) == {"true": "a", "no": "b", "1": "c"}
