"""How many of the requests that were held for a copy may go to the copies that are there now.

All at once would be a stampede: the first copy to be ready would get every one of them, and the
next one, a moment later, none.
"""

from collections.abc import Sequence

WINDOW = 16  # requests under way on a copy up to which held ones go to it without waiting
PACE_S = 0.02  # from one look to the next


def num_let_go(outstanding: Sequence[int], window: int = WINDOW) -> int:
    """How many may go now, by what is under way on each copy.

    As many as fill every copy's window, and one a copy in any case: a copy that takes long over its
    requests has a queue of its own, and is better asked than not.
    """
    return sum(max(1, window - count) for count in outstanding)
