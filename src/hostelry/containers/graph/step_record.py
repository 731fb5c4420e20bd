"""Record of one call's steps: times, bytes and requests, which the gateway keeps with it."""

from dataclasses import dataclass

from hostelry.graph.state import ReadyStep
from hostelry.graph.step_report import StepReport, owners, step_header, with_owners
from hostelry.graph.steps import GraphPlan

UNDER_WAY = "under way"
HIT = "hit"


@dataclass(slots=True)
class _Noted:
    """A step, or one item of it; `ended_at` None while it is under way."""

    name: str
    is_item: bool
    began_at: float
    ended_at: float | None = None
    end: str = UNDER_WAY
    bytes_in: int = 0
    bytes_out: int = 0
    request_id: str = ""


class StepRecord:
    """The steps of one call; instants are in seconds of one clock, `began_at` the call's own."""

    def __init__(self, plan: GraphPlan, began_at: float) -> None:
        self._plan = plan
        self._began_at = began_at
        self._noted: dict[str, _Noted] = {}

    def began(self, ready: ReadyStep, at: float) -> None:
        """A step begins."""
        self._noted[ready.key] = _Noted(ready.name, ready.item is not None, at)

    def sent(self, key: str, num_bytes: int) -> None:
        """Its request at the gateway has a body of so many bytes."""
        self._noted[key].bytes_in = num_bytes

    def answered(self, key: str, num_bytes: int, request_id: str) -> None:
        """The gateway answered it, under that request id."""
        noted = self._noted[key]
        noted.bytes_out, noted.request_id = num_bytes, request_id

    def ended(self, ready: ReadyStep, at: float, end: str) -> None:
        """It ends."""
        noted = self._noted[ready.key]
        noted.ended_at, noted.end = at, end

    def header(self, now: float) -> str:
        """The header's value at `now`, the end of the call or the beginning of its stream."""
        above = owners(self._plan)
        rows = []
        for key, noted in self._noted.items():
            step = self._plan.steps[noted.name]
            until = now if noted.ended_at is None else noted.ended_at
            rows.append(
                StepReport(
                    name=key,
                    kind="call" if noted.is_item else step.kind,
                    under=noted.name if noted.is_item else above.get(key, ""),
                    at_ms=round((noted.began_at - self._began_at) * 1000, 3),
                    ms=round((until - noted.began_at) * 1000, 3),
                    end=noted.end,
                    bytes_in=noted.bytes_in,
                    bytes_out=noted.bytes_out,
                    request_id=noted.request_id,
                )
            )
        return step_header(with_owners(rows, self._plan))
