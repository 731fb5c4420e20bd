"""Time that an agent has to answer before it is killed and started again. Pure.

An agent that had too little time on a busy machine needs more of it, not another start: the time
doubles with each kill.
"""

from collections.abc import Sequence

# A kill counts for that long; then the agent has the first time again.
KILL_COUNTS_S = 3600.0
MAX_DOUBLINGS = 4


def patience_s(first_s: float, kills: Sequence[float], now: float) -> float:
    """The seconds that an agent has, killed at the times `kills` before; `first_s` without any."""
    return first_s * 2.0 ** min(sum(now - at < KILL_COUNTS_S for at in kills), MAX_DOUBLINGS)
