"""What happens to a request for a name that has no copy, and whether anything may start one."""

from enum import Enum


class AtZero(Enum):
    """What a request without a copy gets: it waits for one, or AWS's error at once."""

    HOLD = "hold"
    COMPAT = "compat"


class Wakeable(Enum):
    """Whether a request may have a copy started where none is wanted, or why it may not."""

    YES = "yes"
    NO_TARGET = "no-target"  # zero is what somebody asked for, by hand
    MAX_ZERO = "max-zero"  # a schedule, for example, allows no copy now
    SUSPENDED = "suspended"  # scaling out is
