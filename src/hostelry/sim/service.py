"""Service times of requests, and their model from measured requests."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode

# Service times of requests: reading the prompt, then one token after the other, in a batch.
#
# A request has work: `prefill_s + input x prefill_s_per_token + output x token_s`, which is how
# long it takes alone. Among n requests in a copy's batch each gets on `slowdown(n)` times slower.
# Beyond `max_concurrency` the others wait, first come first served.


MAX_CONCURRENCY = 4096
MAX_FACTOR = 100_000


class ServiceModel(msgspec.Struct, frozen=True, kw_only=True):
    """A copy's speed. Raises ValueError for impossible values.

    `slowdown` has points (requests in the batch, times slower than alone), from (1, 1.0) on.
    Between points it is a straight line, and after the last it rises as between the last two.
    `spread` has points (share of the requests, factor of their work), as measured: the work of a
    request is the above times a drawn factor. Without points it is the same for all.
    `warm_start_s`, `cold_start_s` and `instance_start_s` are how long a copy takes to come up on an
    instance that has had one, on an instance that has not, and an instance itself. `origin` says
    where the figures are from.
    """

    prefill_s: float = 0.0
    prefill_s_per_token: float
    token_s: float
    max_concurrency: int = 8
    slowdown: tuple[tuple[int, float], ...] = ((1, 1.0),)
    spread: tuple[tuple[float, float], ...] = ()
    warm_start_s: float = 1.3
    cold_start_s: float = 7.0
    instance_start_s: float = 2.0
    origin: str = ""

    def __post_init__(self) -> None:
        for name in ("prefill_s", "prefill_s_per_token", "token_s"):
            _check_finite(name, getattr(self, name), 3600.0)
        for name in ("warm_start_s", "cold_start_s", "instance_start_s"):
            _check_finite(name, getattr(self, name), 86_400.0)
        if not 1 <= self.max_concurrency <= MAX_CONCURRENCY:
            raise ValueError(
                f"max_concurrency is {self.max_concurrency}; it must be from 1 to {MAX_CONCURRENCY}"
            )
        _check_slowdown(self.slowdown)
        _check_spread(self.spread)

    @property
    def mean_factor(self) -> float:
        """The mean of the factors in `spread`."""
        if not self.spread:
            return 1.0
        return sum((it[0] - one[0]) * (one[1] + it[1]) / 2 for one, it in pairwise(self.spread))

    def work_s(self, input_tokens: int, output_tokens: int) -> float:
        """Seconds that a request takes alone."""
        return self.first_work_s(input_tokens) + max(0, output_tokens - 1) * self.token_s

    def first_work_s(self, input_tokens: int) -> float:
        """Seconds until a request's first token, alone."""
        return self.prefill_s + input_tokens * self.prefill_s_per_token + self.token_s

    def slowdowns(self) -> list[float]:
        """How many times slower each of n requests is than one alone, by n. [0] is 1."""
        return [1.0, *(_on_line(self.slowdown, n) for n in range(1, self.max_concurrency + 1))]


def _check_finite(name: str, value: float, most: float) -> None:
    if not (math.isfinite(value) and 0.0 <= value <= most):
        raise ValueError(f"{name} is {value}; it must be from 0 to {most:g} seconds")


def _check_slowdown(points: tuple[tuple[int, float], ...]) -> None:
    if not points or points[0] != (1, 1.0):
        raise ValueError(f"slowdown begins with {points[:1]}; it must begin with (1, 1.0)")
    for (num, factor), (next_num, next_factor) in pairwise(points):
        if next_num <= num or not (math.isfinite(next_factor) and next_factor >= factor):
            raise ValueError(
                f"slowdown goes from ({num}, {factor}) to ({next_num}, {next_factor}); "
                "both numbers must rise"
            )


def _check_spread(points: tuple[tuple[float, float], ...]) -> None:
    if not points:
        return
    if len(points) < 2 or points[0][0] != 0.0 or points[-1][0] != 1.0:
        raise ValueError(f"spread is {points!r:.80}; its shares must go from 0 to 1")
    if not (math.isfinite(points[0][1]) and points[0][1] > 0.0):
        raise ValueError(f"spread begins with the factor {points[0][1]}; it must be above 0")
    for (share, factor), (next_share, next_factor) in pairwise(points):
        if not (share < next_share and factor <= next_factor < MAX_FACTOR):
            raise ValueError(
                f"spread goes from ({share}, {factor}) to ({next_share}, {next_factor}); shares "
                f"must rise, and factors must not fall, and be below {MAX_FACTOR:,}"
            )


def _on_line(points: tuple[tuple[int, float], ...], num: int) -> float:
    if len(points) == 1:
        return points[0][1]
    place = min(max(1, bisect_left([it[0] for it in points], num)), len(points) - 1)
    (from_num, from_factor), (to_num, to_factor) = points[place - 1], points[place]
    return from_factor + (to_factor - from_factor) * (num - from_num) / (to_num - from_num)


def default_service() -> ServiceModel:
    """The package's own model: SmolLM2-135M on two cores. `origin` has how it was measured."""
    text = files("hostelry.sim").joinpath("calibrations", "smollm2-135m-2cpu.json").read_bytes()
    return decode(text, ServiceModel)


def load_service(path: Path) -> ServiceModel:
    """Read the calibration in a file. Raises TerminalError with the invalid field."""
    try:
        return decode(path.read_bytes(), ServiceModel)
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise TerminalError(f"{path} is no calibration: {error}") from None


def save_service(service: ServiceModel, path: Path) -> None:
    """Write a calibration. Raises TerminalError if the file cannot be written."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(service), indent=2) + b"\n")
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A real request: its tokens, and seconds until its first and its last one.

    `beside` is how many requests of the same kind were under way at a time, itself included.
    """

    input_tokens: int
    output_tokens: int
    first_s: float
    last_s: float
    beside: int = 1


def fit_service(measured: Sequence[Measured], origin: str) -> ServiceModel:
    """Fit a model to measured requests.

    Raises TerminalError if there are too few, or if they contradict each other.
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
    slowdown = measure_slowdowns(model, measured)
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


def measure_slowdowns(model: ServiceModel, measured: Sequence[Measured]) -> Mapping[int, float]:
    """How many times longer than alone requests took, by their number. Never falls."""
    found, least = {1: 1.0}, 1.0
    for beside in sorted({it.beside for it in measured} - {1}):
        mine = [it for it in measured if it.beside == beside]
        taken = [it.last_s / model.work_s(it.input_tokens, it.output_tokens) for it in mine]
        least = max(least, typical(taken))
        found[beside] = round(least, 4)
    return found
