"""Graphs as text and as SVG."""

from xml.etree import ElementTree

from hostelry.graph.check import build_plan
from hostelry.graph.drawing import describe_plan, graph_lines, graph_svg

TEXT = """
output: mean
steps:
  mean: {gather: {of: both, by: mean}}
  both: {scatter: [a, b]}
  a: {call: {endpoint: e, component: '<a>'}, on_error: drop, input: rows}
  b: {call: {endpoint: e, model: m}, input: rows}
  rows: {map: input.rows}
""".replace("'<a>'", "a")
MINUTE = {
    "": {"count": 2, "p50_ms": 7.04, "p99_ms": 9, "dropped": 0, "default": 0, "failed": 0},
    "a": {"count": 2, "p50_ms": 5, "p99_ms": 6, "dropped": 1, "default": 0, "failed": 0},
}


def test_the_tree_leads_from_the_output_to_the_request() -> None:
    drawing = {**describe_plan(build_plan(TEXT)), "last_minute": MINUTE}
    assert graph_lines(drawing) == [
        "whole call: 2 times, p50 7.0 ms, p99 9.0 ms; deadline 55 s",
        "mean               gather mean",
        "└─ both            scatter",
        "   ├─ a            call component a of endpoint e (on_error: drop)"
        "  2 times, p50 5.0 ms, p99 6.0 ms, 1 dropped",
        "   │  └─ rows      map input.rows",
        "   │     └─ input  the request, application/json",
        "   └─ b            call model m of endpoint e",
        "      └─ rows      as above",
    ]


def test_the_svg_has_a_box_for_each_step_and_an_edge_for_each_need() -> None:
    drawn = graph_svg(describe_plan(build_plan(TEXT)), "a < b")
    root = ElementTree.fromstring(drawn)
    names = [it.tag.rpartition("}")[2] for it in root.iter()]
    assert (names.count("rect"), names.count("path")) == (1 + 6, 6)
    assert "a &lt; b" in drawn
