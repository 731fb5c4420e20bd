"""Documents become plans, or faults that name step and field."""

import pytest
from tests.cases import case, cases

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


@cases(
    "text, fault",
    case("nothing", "", "graph.yaml has no keys"),
    case("an anchor", "output: a\nsteps: {a: &x {map: input}, b: *x}", "anchors and aliases"),
    case("a key twice", "output: a\noutput: b\nsteps: {}", "given twice (line 2)"),
    case("a tag", "output: a\nsteps: !!str {}", "tags are refused"),
    case("depth", "output: a\nsteps: " + "[" * 99, "nested more than 32 deep"),
    case("no steps", "output: a\nsteps: {}", "field steps: there is none"),
    case("an unknown key of the document", "output: a\nsteps: {a: {map: input}}\nretries: 3",
        "unknown field `retries`"),
    case("an unknown key of a step", one("{call: {endpoint: e, retry: 3}}"),
        "step answer, field call: Object contains unknown field `retry`"),
    case("a value of another type", one("{call: {endpoint: 3}}"),
        "step answer, field call.endpoint: Expected"),
    case("no kind", one("{input: rows}"), "step answer: needs one of call, map"),
    case("two kinds", one("{map: input, call: {endpoint: e}}"), "has call and map"),
    case("a name that is no name", one(CALL, "  in-put: {map: input}"),
        "step in-put: a name has letters"),
    case("a missing input", one("{call: {endpoint: e}, input: rows}"),
        "step answer, field input: there is no step rows"),
    case("a missing target", one("{call: {component: c}}"), "field call.endpoint: it is missing"),
    case("a container and a component", one("{call: {endpoint: e, container: c, component: d}}"),
        "field call.component: it goes with neither variant, model nor container"),
    case("a name that no endpoint can have", one("{call: {endpoint: 'a b'}}"),
        "field call.endpoint: 'a b' is not a name"),
    case("a missing branch", one("{scatter: [a, b]}", f"  a: {CALL}"),
        "step answer, field scatter: there is no step b"),
    case("itself", one("{call: {endpoint: e}, input: answer}"),
        "step answer: it needs itself: answer needs answer"),
    case("a cycle of two", one("{map: a.x}", "  a: {map: b.x}\n  b: {map: a.x}"),
        "it needs itself"),
    case("a step that nothing uses", one(CALL, f"  other: {CALL}"), "step other: no step uses it"),
    case("a field of a text", one("{map: 'text.label'}", TEXT_CALL),
        "step answer, field map: the field label needs an object, and there is a text"),
    case("a function with too many arguments", one("{map: 'length(input, input)'}"),
        "length() takes 1 arguments"),
    case("a function that is not there", one("{map: 'size(input)'}"),
        "there is no function size()"),
    case("a literal that is no JSON", one("{map: 'input > `0.8x`'}"), "deprecated string literal"),
    case("a row of pairs, which doubles each time", one("{map: 'input" + " | [@, @]" * 6 + "'}"),
        "field map: it can repeat a value 64 times; at most 32"),
    case("the first and the last, which are one",
        one("{map: 'input" + " | [@] | [[0], [-1]]" * 6 + "'}"), "it can repeat a value 64 times"),
    case("texts in texts, whose marks double",
        one("{map: '" + "to_string([" * 6 + "input" + "])" * 6 + "'}"),
        "it can repeat a value 64 times"),
    case("pairs of each element", one("{map: 'map(&[@, @], input)" + "[].[@, @]" * 5 + "'}"),
        "it can repeat a value 64 times"),
    case("copies of copies, of another step", one("{map: '[m, m, m, m, m, m]'}",
                     "  m: {map: '[input, input, input, input, input, input]'}\n"),
        "step answer, field map: it can repeat a value 36 times"),
    case("the whole scope", one("{map: '@'}"), "it stands for every step"),
    case("half an expression", one("{map: 'input['}"), "is no JMESPath expression"),
    case("bytes as JSON", one("{call: {endpoint: e}, input: png}",
                     "  png: {call: {endpoint: e, accept: image/png}}"),
        "field input: bytes cannot be sent as application/json"),
    case("the mean of texts",
        one("{gather: {of: both, by: mean}}", "  both: {scatter: [text]}\n" + TEXT_CALL),
        "field gather.by: text is a text, which has no numbers"),
    case("a gather of no scatter", one("{gather: {of: a, by: mean}}", f"  a: {CALL}"),
        "field gather.of: a is no scatter"),
    case("a missing weight", one("{gather: {of: both, by: weighted_mean, weights: {a: 1}}}",
                     f"  both: {{scatter: [a, b]}}\n  a: {CALL}\n  b: {CALL}"),
        "field gather.weights: they are of a; both has a, b"),
    case("a cascade that never goes on",
        one("{cascade: [{step: a}, {step: b}]}", f"  a: {CALL}\n  b: {CALL}"),
        "field cascade[0].enough: it is missing"),
    case("no default", one("{call: {endpoint: e}, on_error: default}"), "field default"),
    case("a default of another type",
        one("{call: {endpoint: e, accept: text/csv}, on_error: default, default: 3}"),
        "field default: it is a number, and the step's is a list"),
    case("a field without meaning", one("{scatter: [a], on_error: drop}", f"  a: {CALL}"),
        "field on_error: it has no meaning for scatter"),
    case("a function without a module", one("{map: {function: os.system}}"), "field map.function"),
    case("no time to live", one("{cache: {of: a, ttl_s: 0}}", f"  a: {CALL}"), "field cache.ttl_s"),
    case("no time", one(CALL) + "deadline_s: 0\n", "field deadline_s"),
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
