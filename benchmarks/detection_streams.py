"""Requests of the detection study: steady streams and streams that step up, as seconds of load."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hostelry.sim.arrivals import CODE_LASTS_S, code_hour, modulate_arrivals
from hostelry.sim.scenario import CHAT, CODE, RequestLengths

Floats = NDArray[np.float64]
# With these times, a call of the chat trace's lengths takes 4.68 s on average.
PREFILL_S = 0.00025  # for each token of a prompt
DECODE_S = 0.0203  # for each token of an answer
NUM_HOURS = 12
SAMPLES_PER_S = 20  # of the calls in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A kind of load: `per_s` before the step, and `ratio` times that rate after it.

    `draw` returns the arrivals for a step's seconds before it, seconds after it, and ratio.
    """

    name: str
    per_s: float
    ratio: float
    lengths: RequestLengths
    draw: Callable[[np.random.Generator, float, float, float], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """The load that the gateway would report, by second."""

    arrivals: Floats
    finished: Floats
    service_s: Floats
    in_flight_mean: Floats
    in_flight_max: Floats


def gamma_stream(name: str, per_s: float, ratio: float, cv: float) -> Stream:
    """Gamma times between arrivals (cv 1: Poisson), with `ratio` times as many after the step."""

    def draw(source: np.random.Generator, before_s: float, after_s: float, ratio: float) -> Floats:
        edges = np.array([0.0, before_s, before_s + after_s])
        return modulate_arrivals(source, edges, np.array([per_s, per_s * ratio]), cv)

    return Stream(name=name, per_s=per_s, ratio=ratio, lengths=CHAT, draw=draw)


def code_stream(name: str, ratio: int, seed: int) -> Stream:
    """Bursts and silences as of code completion. After the step, there are `ratio` times the users.

    Each piece begins anywhere in one of `NUM_HOURS` drawn hours.
    """

    @cache
    def hours(number: int) -> Floats:
        return code_hour(np.random.default_rng([seed, number]))

    def draw(source: np.random.Generator, before_s: float, after_s: float, ratio: float) -> Floats:
        drawn = [_of_hours(source, hours, before_s + after_s)]
        more = range(round(ratio) - 1)
        drawn += [_of_hours(source, hours, after_s) + before_s for _ in more]
        found: Floats = np.sort(np.concatenate(drawn))
        return found

    return Stream(name=name, per_s=2.57, ratio=ratio, lengths=CODE, draw=draw)


def _of_hours(
    source: np.random.Generator, hours: Callable[[int], Floats], lasts_s: float
) -> Floats:
    parts, begins = [], 0.0
    while begins < lasts_s:
        hour = hours(int(source.integers(NUM_HOURS)))
        turned = np.sort((hour + float(source.random()) * CODE_LASTS_S) % CODE_LASTS_S)
        parts.append(turned + begins)
        begins += CODE_LASTS_S
    at_s: Floats = np.concatenate(parts)
    return at_s[at_s < lasts_s]


def service_times(source: np.random.Generator, lengths: RequestLengths, num: int) -> Floats:
    """Seconds that each call takes, whatever else runs."""
    found: Floats = (
        lengths.input.draw(source, num) * PREFILL_S + lengths.output.draw(source, num) * DECODE_S
    )
    return found


def mean_service_s(lengths: RequestLengths) -> float:
    """The mean of many draws, always from the same seed."""
    return float(service_times(np.random.default_rng(1), lengths, 200_000).mean())


def seconds_of(at_s: Floats, service_s: Floats, num_seconds: int) -> Seconds:
    """The seconds from 0 to `num_seconds` of calls that begin at `at_s`."""
    ends_s = at_s + service_s
    done = ends_s < num_seconds
    instants = (np.arange(num_seconds * SAMPLES_PER_S) + 0.5) / SAMPLES_PER_S
    under_way = np.searchsorted(np.sort(at_s), instants) - np.searchsorted(
        np.sort(ends_s), instants
    )
    by_second = under_way.reshape(num_seconds, SAMPLES_PER_S)
    return Seconds(
        arrivals=_by_second(at_s, np.ones_like(at_s), num_seconds),
        finished=_by_second(ends_s[done], np.ones(int(done.sum())), num_seconds),
        service_s=_by_second(ends_s[done], service_s[done], num_seconds),
        in_flight_mean=by_second.mean(axis=1),
        in_flight_max=by_second.max(axis=1).astype(np.float64),
    )


def _by_second(at_s: Floats, weights: Floats, num_seconds: int) -> Floats:
    found = np.bincount(at_s.astype(np.int64), weights, num_seconds)
    return found[:num_seconds].astype(np.float64)
