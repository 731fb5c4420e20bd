"""Report on a step of one call, from a graph's server to the gateway in an answer's header. Pure.

The header is JSON: a list of rows in the order of their beginnings.
"""

from collections.abc import Sequence

import msgspec

from hostelry.base.json import decode
from hostelry.graph.steps import GraphPlan

HEADER = "X-Hostelry-Graph-Steps"
MAX_MS = 1e9
MAX_ROWS = 128  # about 14 KB; of more the longest ones


class StepReport(msgspec.Struct, frozen=True, array_like=True):
    """One step that took part, or one item of it.

    `under` is the step that it belongs to: a scatter, cascade, switch or cache; empty for none.
    Times are in milliseconds since the call's beginning. `end` is how it ended, "under way" where
    the call ended before it, "hit" where a cache had the answer. `request_id` is the request that
    it made at the gateway; the bytes are that request's body and its answer's.
    """

    name: str
    kind: str
    under: str
    at_ms: float
    ms: float
    end: str
    bytes_in: int = 0
    bytes_out: int = 0
    request_id: str = ""


def step_header(rows: Sequence[StepReport]) -> str:
    """The value of the header."""
    if len(rows) > MAX_ROWS:
        rows = sorted(rows, key=lambda it: -it.ms)[:MAX_ROWS]
    ordered = sorted(rows, key=lambda it: it.at_ms)
    return msgspec.json.encode(ordered).decode("ascii", "replace")


def reports_of(header: str) -> tuple[StepReport, ...]:
    """The rows of a header, which any container may send; none where it has another form."""
    try:
        rows = decode(header, tuple[StepReport, ...])
    except (msgspec.MsgspecError, RecursionError):
        return ()
    return tuple(it for it in rows[:MAX_ROWS] if 0 <= it.at_ms < MAX_MS and 0 <= it.ms < MAX_MS)


def owners(plan: GraphPlan) -> dict[str, str]:
    """Of each step that another one runs, that one: scatter, cascade, switch or cache."""
    found: dict[str, str] = {}
    for step in plan.steps.values():
        for branch in step.branches:
            found.setdefault(branch, step.name)
    return found


def with_owners(rows: Sequence[StepReport], plan: GraphPlan) -> list[StepReport]:
    """`rows` and those of the steps that they belong to, as far as these have none of their own."""
    above = owners(plan)
    found = {row.name: row for row in rows}
    for row in rows:
        name = row.under
        while name and name not in found:
            kind, under = plan.steps[name].kind, above.get(name, "")
            found[name] = StepReport(name, kind, under, row.at_ms, row.ms, row.end)
            name = under
    return list(found.values())
