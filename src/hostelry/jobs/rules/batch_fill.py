"""Filling of copies with requests of batches: the number at once, and which are next. PURE.

An engine computes up to so many requests in a step, and takes the next from those that wait there:
it is kept full by a few more than that. A copy says how many it wants at once in its answer to
GET /execution-parameters (MaxConcurrentTransforms), which the LLM server answers with its own
batch and an eighth.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_AT_ONCE = 36  # of a copy that does not say: a batch of 32 and an eighth
MAX_AT_ONCE = 1024
HELD = 4  # requests for a model without a copy that wait for one, which wakes it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQueue:
    """One model's requests of one batch: the numbers of the lines that wait, and those in flight.

    `pool` names its copies, which a base's adapters share; None where the model has none.
    """

    model: str
    pool: str | None
    waiting: Sequence[int]
    in_flight: int


def wanted_at_once(reported: int | None) -> int:
    """The requests that keep a copy full; `reported` is what it says, if anything."""
    return UNKNOWN_AT_ONCE if not reported else max(1, min(reported, MAX_AT_ONCE))


def room_for_batch(wanted: Sequence[int], num_batches: int, in_flight: int) -> int:
    """The requests that a batch may add to a pool whose copies want `wanted` each.

    `num_batches` share the pool evenly; `in_flight` are the batch's own requests there.
    """
    share = -(-sum(wanted) // max(1, num_batches))
    return max(0, max(1, share) - in_flight) if wanted else 0


def next_models(queues: Sequence[ModelQueue], room: dict[str, int]) -> list[str]:
    """The models whose first waiting lines are sent now, in the order of those lines in the file.

    `room` is what each pool takes. A model without a copy has room of its own: a few of its lines
    wait for one, beside the lines of others.
    """
    left = dict(room)
    held = {it.model: HELD - it.in_flight for it in queues if it.pool is None}
    firsts = [(it.waiting[0], index, 0) for index, it in enumerate(queues) if it.waiting]
    heapq.heapify(firsts)
    chosen: list[str] = []
    while firsts:
        _, index, position = heapq.heappop(firsts)
        queue = queues[index]
        place, rooms = (queue.model, held) if queue.pool is None else (queue.pool, left)
        if rooms.get(place, 0) <= 0:
            continue  # nothing behind it has room either
        rooms[place] -= 1
        chosen.append(queue.model)
        if position + 1 < len(queue.waiting):
            heapq.heappush(firsts, (queue.waiting[position + 1], index, position + 1))
    return chosen
