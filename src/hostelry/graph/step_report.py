"""Headers between a graph's server and the gateway. Pure.

The server reports the steps of a call in STEPS_HEADER of its answer: JSON, a list of rows in the
order of their beginnings. With PROOF_HEADER an invocation asks the gateway whether a target exists.
Only a graph's copy may ask, and no model gets the request.
"""

from collections.abc import Sequence

import msgspec

from hostelry.base.json import decode
from hostelry.graph.steps import GraphPlan

STEPS_HEADER = "X-Hostelry-Graph-Steps"
MAX_MS = 1e9
MAX_ROWS = 128  # about 14 KB: if there are more steps, the longest are reported
PROOF_HEADER, PROOF_EXISTS = "X-Hostelry-Graph-Proof", "exists"


class StepReport(msgspec.Struct, frozen=True, array_like=True):
    """One step of a call, or one of its items.

    `under` is the scatter, cascade, switch or cache that ran it, or empty. Times are in
    milliseconds since the call's beginning. `end` is the way it ended: "under way" if the call
    ended before the step, "hit" if a cache had the answer. `request_id` is the step's request at
    the gateway, with the bytes of its body and of its answer.
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


def encode_steps(rows: Sequence[StepReport]) -> str:
    """The value of the header."""
    if len(rows) > MAX_ROWS:
        rows = sorted(rows, key=lambda it: -it.ms)[:MAX_ROWS]
    ordered = sorted(rows, key=lambda it: it.at_ms)
    return msgspec.json.encode(ordered).decode("ascii", "replace")


def parse_steps(header: str) -> tuple[StepReport, ...]:
    """The rows of a header, which any container may send. Empty if the header is invalid."""
    try:
        rows = decode(header, tuple[StepReport, ...])
    except (msgspec.MsgspecError, RecursionError):
        return ()
    return tuple(it for it in rows[:MAX_ROWS] if 0 <= it.at_ms < MAX_MS and 0 <= it.ms < MAX_MS)


def find_owners(plan: GraphPlan) -> dict[str, str]:
    """The scatter, cascade, switch or cache that runs a step, by the step's name."""
    owners: dict[str, str] = {}
    for step in plan.steps.values():
        for branch in step.branches:
            owners.setdefault(branch, step.name)
    return owners


def add_owners(rows: Sequence[StepReport], plan: GraphPlan) -> list[StepReport]:
    """`rows`, and rows for their owners that have no row."""
    above = find_owners(plan)
    found = {row.name: row for row in rows}
    for row in rows:
        name = row.under
        while name and name not in found:
            kind, under = plan.steps[name].kind, above.get(name, "")
            found[name] = StepReport(name, kind, under, row.at_ms, row.ms, row.end)
            name = under
    return list(found.values())
