"""A graph for people: as JSON values, as text and as SVG, with the times of its steps. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from hostelry.graph.steps import (
    REQUEST,
    CacheAction,
    CallAction,
    CascadeAction,
    EachAction,
    FunctionAction,
    GatherAction,
    GraphPlan,
    GraphStep,
    MapAction,
    OnError,
    SwitchAction,
)

MAX_TITLE = 60
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 250, 58, 60, 22, 20
Drawing = Mapping[str, Any]


def describe_plan(plan: GraphPlan) -> dict[str, Any]:
    """The plan as JSON values: the steps in order, each with its title and needs."""
    return {
        "output": plan.output,
        "content_type": plan.content_type,
        "deadline_s": plan.deadline_s,
        "steps": [
            {
                "name": step.name,
                "kind": step.kind,
                "title": describe_step(step),
                "needs": [*step.references, *step.branches],
            }
            for step in plan.steps.values()
        ],
    }


def describe_step(step: GraphStep) -> str:
    """The step's action in words."""
    rule = "" if step.on_error is OnError.FAIL else f" (on_error: {step.on_error.value})"
    return _title(step)[:MAX_TITLE] + rule


def _title(step: GraphStep) -> str:
    action = step.action
    if isinstance(action, CallAction):
        return f"call {action.target.title}"
    if isinstance(action, EachAction):
        return f"scatter {action.each.text} to {action.target.title}"
    if isinstance(action, MapAction):
        return f"map {action.expression.text}"
    if isinstance(action, FunctionAction):
        return f"map {action.function}"
    if isinstance(action, GatherAction):
        return f"gather {action.function or (action.by.value if action.by else '')}"
    if isinstance(action, SwitchAction):
        return f"switch {action.by.text}"
    if isinstance(action, CascadeAction):
        return "cascade, until " + ", ".join(it.enough.text for it in action.entries if it.enough)
    if isinstance(action, CacheAction):
        return f"cache for {action.ttl_s:g} s"
    return step.kind


def graph_lines(drawing: Drawing) -> list[str]:
    """The graph as a tree, from the output to the request. Each step is expanded once."""
    steps = {it["name"]: it for it in drawing["steps"]}
    times: Mapping[str, Any] = drawing.get("last_minute", {})
    rows: list[tuple[str, str, str]] = []
    shown: set[str] = set()

    def add(name: str, first: str, rest: str) -> None:
        if name == REQUEST:
            rows.append((f"{first}{REQUEST}", f"the request, {drawing['content_type']}", ""))
            return
        if name in shown:
            rows.append((f"{first}{name}", "as above", ""))
            return
        shown.add(name)
        step = steps[name]
        rows.append((f"{first}{name}", step["title"], time_text(times.get(name))))
        needs = step["needs"]
        for position, need in enumerate(needs):
            is_last = position == len(needs) - 1
            add(need, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))

    add(drawing["output"], "", "")
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    head = f"whole call: {time_text(times.get('')) or 'none in the last minute'}"
    head += f"; deadline {drawing['deadline_s']:g} s"
    table = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]
    return [head, *table]


def time_text(times: Mapping[str, float] | None) -> str:
    """The last minute of a step. Empty if the step did not run."""
    if not times:
        return ""
    text = f"{times['count']:.0f} times, p50 {times['p50_ms']:.1f} ms, p99 {times['p99_ms']:.1f} ms"
    ends = [f"{times[name]:.0f} {name}" for name in ("dropped", "default", "failed") if times[name]]
    return ", ".join([text, *ends])


def graph_svg(drawing: Drawing, title: str) -> str:
    """The graph as an SVG document: the request at the left, the output at the right."""
    places = _places(drawing)
    width = max(x for x, _ in places.values()) + BOX_WIDTH + MARGIN
    height = max(y for _, y in places.values()) + BOX_HEIGHT + MARGIN
    times: Mapping[str, Any] = drawing.get("last_minute", {})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 30}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for step in drawing["steps"]:
        needs = dict.fromkeys(step["needs"])
        parts += [_edge(places[need], places[step["name"]]) for need in needs]
    parts.append(_box(places[REQUEST], (REQUEST, drawing["content_type"], "")))
    for step in drawing["steps"]:
        lines = (step["name"], step["title"], time_text(times.get(step["name"])))
        parts.append(_box(places[step["name"]], lines))
    whole = escape(f"{title}: {time_text(times.get('')) or 'no call in the last minute'}")
    parts.append(f'<text x="{MARGIN}" y="{height + 15}">{whole}</text></svg>')
    return "\n".join(parts)


def _places(drawing: Drawing) -> dict[str, tuple[int, int]]:
    """The position of each box: one column after all its needs."""
    columns: dict[str, int] = {REQUEST: 0}
    for step in drawing["steps"]:
        columns[step["name"]] = 1 + max((columns[it] for it in step["needs"]), default=0)
    counts: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for name, column in columns.items():
        row = counts.get(column, 0)
        counts[column] = row + 1
        x, y = column * (BOX_WIDTH + GAP_X), row * (BOX_HEIGHT + GAP_Y)
        places[name] = (MARGIN + x, MARGIN + y)
    return places


def _edge(begin: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = begin[0] + BOX_WIDTH, begin[1] + BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT // 2
    half = (x2 - x1) // 2
    path = f"M{x1},{y1} C{x1 + half},{y1} {x2 - half},{y2} {x2},{y2}"
    return f'<path d="{path}" fill="none" stroke="#888"/>'


def _box(place: tuple[int, int], lines: Sequence[str]) -> str:
    x, y = place
    name, title, time = (escape(line[:44]) for line in lines)
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" fill="#eef3f8" '
        'stroke="#456"/>'
        f'<text x="{x + 8}" y="{y + 17}" font-weight="bold">{name}</text>'
        f'<text x="{x + 8}" y="{y + 33}">{title}</text>'
        f'<text x="{x + 8}" y="{y + 49}" fill="#456">{time}</text>'
    )
