"""Arrival times of requests: renewal processes whose rate changes, drawn at once with numpy."""

from collections.abc import Callable, Mapping
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

from hostelry.sim.trace import FloatArray, IntArray

SCALES_S = (1, 10, 60)


class ArrivalStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of arrivals.

    `cv` is the coefficient of variation of the time between two. The others are by scale (1, 10, 60
    s): `idc`, the variance of counts over their mean (1: Poisson), `peak`, the largest count over
    the mean, and `silent`, the share of empty bins.
    """

    rate: float
    cv: float
    idc: Mapping[int, float]
    peak: Mapping[int, float]
    silent: Mapping[int, float]

    def by_name(self) -> dict[str, float]:
        """Every figure by one name: rate, cv, idc@1, peak@60 ..."""
        scaled = {"idc": self.idc, "peak": self.peak, "silent": self.silent}
        figures = {f"{name}@{it}": by[it] for name, by in scaled.items() for it in SCALES_S}
        return {"rate": self.rate, "cv": self.cv, **figures}


def get_arrival_statistics(at_s: FloatArray, lasts_s: float) -> ArrivalStatistics:
    """The statistics of arrivals within `lasts_s` seconds, over whole bins.

    Raises ValueError for fewer than two arrivals, or less than a bin of 60 s.
    """
    if len(at_s) < 2 or lasts_s < SCALES_S[-1]:
        raise ValueError("statistics need two arrivals and a minute")
    gaps_s = np.diff(at_s)
    counts = {it: _counts(at_s, lasts_s, it) for it in SCALES_S}
    return ArrivalStatistics(
        rate=len(at_s) / lasts_s,
        cv=float(gaps_s.std() / gaps_s.mean()),
        idc={it: float(found.var() / found.mean()) for it, found in counts.items()},
        peak={it: float(found.max() / found.mean()) for it, found in counts.items()},
        silent={it: float((found == 0).mean()) for it, found in counts.items()},
    )


def _counts(at_s: FloatArray, lasts_s: float, width_s: int) -> npt.NDArray[np.int64]:
    num_bins = int(lasts_s // width_s)
    places = (at_s / width_s).astype(np.int64)
    return np.bincount(places[places < num_bins], minlength=num_bins)


def get_worst_deviation(found: Mapping[str, float], wanted: Mapping[str, float]) -> float:
    """The largest relative difference from the wanted values. 0.1 is ten percent."""
    return max(abs(found[name] / value - 1.0) for name, value in wanted.items())


CHAT_LASTS_S = 3480.0
CODE_LASTS_S = 3440.0
MAX_DRAFTS = 400
CLOSE = 0.09  # drafts closer than this to the published figures are taken. A tenth is promised

# Source: computed from Azure's LLM inference traces of 2023 (CC-BY 4.0), see docs/replay.md.
CHAT_PUBLISHED: Mapping[str, float] = {
    "rate": 5.53, "cv": 1.09, "idc@1": 1.39, "idc@60": 16.1,
    "peak@1": 2.9, "peak@10": 1.8, "peak@60": 1.5,
}  # fmt: skip
CODE_PUBLISHED: Mapping[str, float] = {
    "rate": 2.57, "cv": 13.2, "idc@1": 13.0, "idc@60": 164.0,
    "peak@1": 26.0, "peak@10": 12.8, "peak@60": 4.2, "silent@10": 0.56,
}  # fmt: skip

Source = np.random.Generator


def modulate_arrivals(
    source: Source, edges_s: FloatArray, rates: FloatArray, cv: float
) -> FloatArray:
    """Arrivals at `rates` between `edges_s`, one more edge than rates, in order.

    Times between arrivals are Gamma's with `cv` (1: Poisson), in a time that runs as fast as the
    rate.
    """
    shape = 1.0 / cv**2
    expected = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * rates)])
    total = float(expected[-1])
    drawn: list[FloatArray] = []
    reached = 0.0
    while reached < total:
        more = reached + np.cumsum(source.gamma(shape, 1.0 / shape, int(total - reached) + 64))
        drawn.append(more)
        reached = float(more[-1])
    passed = np.concatenate(drawn) if drawn else np.empty(0)
    # At a rate of zero `expected` is flat. Arrivals then begin at its next rise.
    return np.interp(passed[passed < total], expected, edges_s)


def steady(source: Source, rate: float, lasts_s: float, cv: float = 1.0) -> FloatArray:
    """Arrivals at one rate."""
    return modulate_arrivals(source, np.array([0.0, lasts_s]), np.array([rate]), cv)


def nearest_draft(
    source: Source,
    draft: Callable[[Source], FloatArray],
    lasts_s: float,
    wanted: Mapping[str, float],
) -> FloatArray:
    """The first draft whose statistics are `CLOSE` to those wanted, or the closest of many.

    A peak or a variance of an hour is one draw of a wide distribution: without this, one seed in
    four (chat) or in a hundred (code) would show the hour that was published.
    """
    best: tuple[float, FloatArray] | None = None
    for _ in range(MAX_DRAFTS):
        at_s = draft(source)
        away = get_worst_deviation(get_arrival_statistics(at_s, lasts_s).by_name(), wanted)
        if best is None or away < best[0]:
            best = (away, at_s)
        if away < CLOSE:
            break
    assert best is not None, "at least one draft was made"
    return best[1]


def chat_hour(source: Source) -> FloatArray:
    """An hour as the conversation trace: a rate that wanders from minute to minute."""
    return nearest_draft(source, _chat_draft, CHAT_LASTS_S, CHAT_PUBLISHED)


def code_hour(source: Source) -> FloatArray:
    """An hour as the code trace: bursts, and silences in between."""
    return nearest_draft(source, _code_draft, CODE_LASTS_S, CODE_PUBLISHED)


def _chat_draft(source: Source) -> FloatArray:
    num_minutes = int(CHAT_LASTS_S // 60)
    of_minute = np.clip(_normal_quantiles(num_minutes), -1.5, 1.5)
    by_minute = 1.0 + 0.21 * source.permutation(of_minute / of_minute.std())
    wobble = 1.0 + 0.08 * np.clip(source.standard_normal(num_minutes * 6), -2.0, 2.0)
    rates = np.repeat(by_minute, 6) * wobble
    edges_s: FloatArray = np.arange(num_minutes * 6 + 1, dtype=np.float64) * 10.0
    return modulate_arrivals(
        source, edges_s, rates * (CHAT_PUBLISHED["rate"] / rates.mean()), cv=1.054
    )


def _code_draft(source: Source) -> FloatArray:
    """Bursts of seconds to a minute, the long ones weaker, after silences of 50 s on average."""
    num_bursts, mean_silence_s = 46, 50.0
    silences_s = source.permutation(_exponential_quantiles(num_bursts))
    silences_s *= mean_silence_s / silences_s.mean()
    bursts_s = source.permutation(_exponential_quantiles(num_bursts))
    bursts_s *= (CODE_LASTS_S - silences_s.sum()) / bursts_s.sum()
    strengths = _weaker_when_long(source, bursts_s)
    edges_s, rates = [0.0], list[float]()
    for silence_s, burst_s, strength in zip(silences_s, bursts_s, strengths, strict=True):
        rates.append(0.0)
        edges_s.append(edges_s[-1] + silence_s)
        num_pieces = int(np.ceil(burst_s))
        edges_s.extend(edges_s[-1] + np.linspace(0.0, burst_s, num_pieces + 1)[1:])
        rates.extend(strength * source.gamma(6.0, 1.0 / 6.0, num_pieces))
    edges, by_piece = np.array(edges_s), np.array(rates)
    wanted = CODE_PUBLISHED["rate"] * CODE_LASTS_S
    return modulate_arrivals(
        source, edges, by_piece * (wanted / (by_piece * np.diff(edges)).sum()), cv=1.0
    )


def _weaker_when_long(source: Source, bursts_s: FloatArray) -> FloatArray:
    num = len(bursts_s)
    against = -0.6 * 3.46 * _ranks(bursts_s) / num + 0.8 * source.standard_normal(num)
    strengths: FloatArray = np.exp(0.75 * _normal_quantiles(num))[_ranks(against)]
    return strengths


def _ranks(values: FloatArray) -> IntArray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _normal_quantiles(num: int) -> FloatArray:
    normal = NormalDist()
    return np.array([normal.inv_cdf((it + 0.5) / num) for it in range(num)])


def _exponential_quantiles(num: int) -> FloatArray:
    return -np.log(1.0 - (np.arange(num) + 0.5) / num)
