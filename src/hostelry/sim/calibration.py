"""From measured requests to a service model: two straight lines and a curve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hostelry.base.errors import TerminalError
from hostelry.sim.service import ServiceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A real request: its tokens, and seconds until its first and its last one.

    `beside` is how many requests of the same kind were under way at a time, itself included.
    """

    input_tokens: int
    output_tokens: int
    first_s: float
    last_s: float
    beside: int = 1


def fitted(measured: Sequence[Measured], origin: str) -> ServiceModel:
    """The model that explains measured requests.

    Raises TerminalError where there are too few, or they contradict each other.
    """
    alone = [it for it in measured if it.beside == 1 and it.output_tokens > 1]
    if len({it.input_tokens for it in alone}) < 2:
        raise TerminalError("a calibration needs requests of two lengths, one at a time")
    token_s = typical((it.last_s - it.first_s) / (it.output_tokens - 1) for it in alone)
    lengths = sorted({it.input_tokens for it in alone})
    firsts = [
        typical(it.first_s for it in alone if it.input_tokens == length) for length in lengths
    ]
    per_token_s, base_s = np.polyfit(lengths, firsts, 1)
    if not (token_s > 0.0 and np.isfinite(per_token_s)):
        raise TerminalError("the answers came in one piece; a calibration needs streamed ones")
    model = ServiceModel(
        prefill_s=max(0.0, float(base_s) - token_s),
        prefill_s_per_token=max(0.0, float(per_token_s)),
        token_s=token_s,
        max_concurrency=max(it.beside for it in measured),
        origin=origin,
    )
    slowdown = slowdowns(model, measured)
    return ServiceModel(
        prefill_s=model.prefill_s,
        prefill_s_per_token=model.prefill_s_per_token,
        token_s=model.token_s,
        max_concurrency=model.max_concurrency,
        slowdown=tuple(slowdown.items()),
        origin=origin,
    )


def typical(values: Iterable[float]) -> float:
    """The lower quartile: a machine that others use too only ever adds."""
    return float(np.quantile(list(values), 0.25))


def slowdowns(model: ServiceModel, measured: Sequence[Measured]) -> Mapping[int, float]:
    """How many times longer than alone requests took, by how many there were; never falls."""
    found, least = {1: 1.0}, 1.0
    for beside in sorted({it.beside for it in measured} - {1}):
        mine = [it for it in measured if it.beside == beside]
        taken = [it.last_s / model.work_s(it.input_tokens, it.output_tokens) for it in mine]
        least = max(least, typical(taken))
        found[beside] = round(least, 4)
    return found
