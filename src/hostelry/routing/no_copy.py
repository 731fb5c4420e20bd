"""Decides if a request without a ready copy waits or fails, and how many are released later."""

from collections.abc import Sequence
from enum import Enum

from hostelry.domain.at_zero import AtZero, Wakeable


class NoCopyAction(Enum):
    """The action for a request without a copy."""

    WAIT = "wait"  # the request waits: copies are desired, and will come
    WAKE = "wake"  # the request waits, and control starts a copy for it
    REFUSE = "refuse"  # the request fails: no copy will come by itself
    RETRY = "retry"  # the request fails, and the client tries again: copies will come


def no_copy_action(at_zero: AtZero, desired_copies: int, wakeable: Wakeable) -> NoCopyAction:
    """Choose the action for a request that found no copy.

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


# Queued requests are released at a limited rate. All at once would overload the first ready copy,
# and leave no request for the next copy, which may be ready a moment later.


WINDOW = 16  # queued requests fill a copy up to this number of requests in flight
RELEASE_INTERVAL_S = 0.02


def num_to_release(outstanding: Sequence[int], window: int = WINDOW) -> int:
    """Count the queued requests to release, given the number in flight on each copy.

    in flight on a copy     released for it
    less than `window`      as many as fill the window
    `window` or more        one: a slow copy queues it, and may be about to free a slot
    """
    return sum(max(1, window - count) for count in outstanding)
