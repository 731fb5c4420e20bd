"""Several sequences of one request, and the best of them."""

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from hostelry.engine.request import Request
from hostelry.engine.sampling.draw import derived_seed


def fan_out(request: Request, num_sequences: int) -> list[Request]:
    """`num_sequences` requests, one for each sequence.

    The first is `request` itself; the others have ids and seeds derived from it, so that the same
    seed gives the same sequences, and a smaller number the first of these. The first alone scores
    the prompt. Raises ValueError for fewer than one.
    """
    if num_sequences < 1:
        raise ValueError(f"{num_sequences} sequences of request {request.id}; at least 1")
    seed = request.sampling.seed
    others = [
        replace(
            request,
            id=f"{request.id}/{number}",
            num_prompt_logprobs=None,
            sampling=replace(
                request.sampling, seed=None if seed is None else derived_seed(seed, number)
            ),
        )
        for number in range(1, num_sequences)
    ]
    return [request, *others]


def best(logprobs: Sequence[Sequence[float]], count: int) -> list[int]:
    """The numbers of the `count` sequences whose tokens have the largest sum of logprobs.

    Likeliest first, of equal ones the one with the smaller number.
    """
    sums = [fsum(each) for each in logprobs]
    return sorted(range(len(sums)), key=lambda number: (-sums[number], number))[:count]
