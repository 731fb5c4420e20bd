"""Requests without a ready copy: wait, wake or fail, and how many are released later."""

from collections.abc import Sequence
from enum import Enum

from hostelry.domain.at_zero import AtZero, Wakeable


class NoCopyAction(Enum):
    """The action for a request without a copy."""

    WAIT = "wait"  # copies are desired, and will come
    WAKE = "wake"  # it waits, and has a copy started
    REFUSE = "refuse"  # no copy will come by itself
    RETRY = "retry"  # it fails at once; the client tries again, since copies are coming


def no_copy_action(at_zero: AtZero, desired_copies: int, wakeable: Wakeable) -> NoCopyAction:
    """The action for a request that found no copy.

    at_zero  desired copies  wakeable   action
    hold     1 or more       any        WAIT
    hold     0               yes        WAKE
    hold     0               otherwise  REFUSE
    compat   1 or more       any        RETRY
    compat   0               any        REFUSE

    Source of compat: "Scale an endpoint to zero instances" in the SageMaker developer guide, where
    a request fails until an alarm on the failures has started a copy.
    """
    if at_zero is AtZero.COMPAT:
        return NoCopyAction.RETRY if desired_copies else NoCopyAction.REFUSE
    if desired_copies:
        return NoCopyAction.WAIT
    return NoCopyAction.WAKE if wakeable is Wakeable.YES else NoCopyAction.REFUSE


# Release of queued requests: how many may go to the copies that are ready now.
#
# All at once would overload the first copy that is ready, and leave nothing for the next one, which
# may be ready a moment later.


WINDOW = 16  # requests in flight on a copy up to which queued ones are sent to it
RELEASE_INTERVAL_S = 0.02


def num_to_release(outstanding: Sequence[int], window: int = WINDOW) -> int:
    """How many requests may go, by the number in flight on each copy.

    in flight on a copy     released for it
    less than `window`      as many as fill the window
    `window` or more        one: a slow copy has a queue of its own, and may be about to free a slot
    """
    return sum(max(1, window - count) for count in outstanding)
