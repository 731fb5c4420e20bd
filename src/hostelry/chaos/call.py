"""One invocation of a drill's load."""

from dataclasses import dataclass

OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """When it began and ended, and OK or the code or class of its error."""

    began_at: float
    ended_at: float
    outcome: str
