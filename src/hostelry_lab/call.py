"""One invocation of a drill's load."""

from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCall:
    """Begin, end, and outcome: OK, or the code or class of the error."""

    began_at: float
    ended_at: float
    outcome: str
