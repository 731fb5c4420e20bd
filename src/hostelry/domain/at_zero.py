"""Scale to zero: the result of a request without a copy, and whether it may start one."""

from enum import Enum


class AtZero(Enum):
    """The result of a request without a copy: it waits for a copy, or gets AWS's error at once."""

    HOLD = "hold"
    COMPAT = "compat"


class Wakeable(Enum):
    """Whether a request may start a copy if none is desired, or why it may not."""

    YES = "yes"
    NO_TARGET = "no-target"  # no autoscaling: a client set the number of copies to zero
    MAX_ZERO = "max-zero"  # the maximum is zero now, for example by a schedule
    SUSPENDED = "suspended"  # scaling out is suspended
