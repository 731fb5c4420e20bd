"""Release of queued requests: how many may go to the copies that are ready now.

All at once would overload the first copy that is ready, and leave nothing for the next one, which
may be ready a moment later.
"""

from collections.abc import Sequence

WINDOW = 16  # requests in flight on a copy up to which queued ones are sent to it
RELEASE_INTERVAL_S = 0.02


def num_to_release(outstanding: Sequence[int], window: int = WINDOW) -> int:
    """How many requests may go, by the number in flight on each copy.

    in flight on a copy     released for it
    less than `window`      as many as fill the window
    `window` or more        one: a slow copy has a queue of its own, and may be about to free a slot
    """
    return sum(max(1, window - count) for count in outstanding)
