"""Estimates from arrivals: rates, burstiness, detection of a rise, control of false alarms."""

import bisect
import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.load import LoadKey
from hostelry.domain.metric import OWN_NAMESPACE, Metric, Sample

# Slow averages: the base rate of arrivals, the cost of a call, and the calls under way.
#
# Expected concurrency is Little's law: arrivals a second x seconds of one call.
# Source: Little, A proof for the queuing formula L = lambda W, Operations Research 9 (1961).


RATE_MEMORY_S = 180.0
IN_FLIGHT_S = 15.0
PRIOR_CALLS = 5.0
FURTHEST = 8.0  # standard deviations by which one second may differ and count whole


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Decayed sums: seconds (`weight`), arrivals in them, calls that finished and their seconds.

    `in_flight` is an average over some `IN_FLIGHT_S`, `in_flight_weight` how much of it is known.
    """

    weight: float = 0.0
    arrivals: float = 0.0
    finished: float = 0.0
    service_s: float = 0.0
    calls: float = 0.0
    in_flight: float = 0.0
    in_flight_weight: float = 0.0

    @property
    def per_s(self) -> float:
        """The base rate: arrivals a second."""
        return self.arrivals / self.weight if self.weight else 0.0

    @property
    def mean_service_s(self) -> float:
        """Seconds that a call takes. While few have finished, estimated by the calls under way."""
        prior = min(PRIOR_CALLS, self.arrivals)
        prior_s = self.calls / self.arrivals if self.arrivals else 0.0
        num = self.finished + prior
        return (self.service_s + prior * prior_s) / num if num else 0.0

    @property
    def num_independent_s(self) -> float:
        """How many seconds of equal weight the base rate is as good as."""
        return self.weight * (1.0 + self.weight / RATE_MEMORY_S)

    def error_per_s(self, dispersion: float) -> float:
        """The base rate's standard error."""
        if not self.weight:
            return 0.0
        return math.sqrt(dispersion * (self.per_s + 0.5 / self.weight) / self.num_independent_s)

    def in_flight_error(self, dispersion: float) -> float:
        """The standard error of `in_flight` as a mean: calls last, so neighbours are alike."""
        lasts_s = self.mean_service_s
        share = lasts_s / (lasts_s + IN_FLIGHT_S)
        return math.sqrt(dispersion * self.in_flight * share)


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """One second's load. All values are finite and not negative."""

    arrivals: float
    finished: float
    service_s: float
    in_flight: float


_KEPT = math.exp(-1.0 / RATE_MEMORY_S)
_IN_FLIGHT_KEPT = math.exp(-1.0 / IN_FLIGHT_S)


def average_second(known: Rates, second: Second, dispersion: float) -> Rates:
    """`known` after one more second. `dispersion` is the dispersion of seconds."""
    counted = second.arrivals
    if known.weight > 1.0:
        usual = known.per_s
        counted = min(counted, usual + FURTHEST * (1.0 + math.sqrt(dispersion * usual)))
    in_flight_weight = known.in_flight_weight * _IN_FLIGHT_KEPT + 1.0
    return Rates(
        weight=known.weight * _KEPT + 1.0,
        arrivals=known.arrivals * _KEPT + counted,
        finished=known.finished * _KEPT + second.finished,
        service_s=known.service_s * _KEPT + second.service_s,
        calls=known.calls * _KEPT + second.in_flight,
        in_flight=known.in_flight + (second.in_flight - known.in_flight) / in_flight_weight,
        in_flight_weight=in_flight_weight,
    )


def jump_to_level(known: Rates, per_s: float, weight: float) -> Rates:
    """`known` at a new level of arrivals, as if that level had been seen for `weight` seconds.

    The estimates of a call's cost stay.
    """
    share = per_s * weight / known.arrivals if known.arrivals else 0.0
    return replace(known, weight=weight, arrivals=per_s * weight, calls=known.calls * share)


# Burstiness of arrivals against Poisson, at several time scales, learnt as they come.
#
# The index of dispersion of counts (variance over mean, 1 for Poisson) is computed from differences
# of neighbouring blocks, as Allan's variance is. A rate that drifts or jumps adds to one difference
# only. It would spoil a variance around a mean for as long as that mean remembers.
#
# Source: Allan, Statistics of atomic frequency standards, Proc. IEEE 54 (1966). For counts: Lowen
# and Teich, Fractal-Based Point Processes (2005), section 3.4.


SCALES_S = (1, 2, 4, 8, 16, 32)
BURST_MEMORY_S = 900.0
PRIOR_BLOCKS = 2.0  # a scale that has seen little is believed to be as the one below it
DOUBT_BLOCKS = 6.0  # and somewhat burstier than it looks: by this over the blocks seen
WIDEST = 25.0  # a difference counts as at most this many variances: no single second deafens


class Scale(msgspec.Struct, frozen=True):
    """Of one block length: arrivals seen when the block began, the last block, the sums.

    `blocks` is how many differences the sums are of.
    """

    began_at: float = 0.0
    last: float | None = None
    squares: float = 0.0
    counts: float = 0.0
    blocks: float = 0.0


class Dispersion(msgspec.Struct, frozen=True):
    """Index of dispersion by scale, each at least 1.

    `num_seconds` and `seen` count from the last gap.
    """

    num_seconds: int = 0
    seen: float = 0.0
    scales: tuple[Scale, ...] = (Scale(),) * len(SCALES_S)
    index: tuple[float, ...] = (1.0,) * len(SCALES_S)

    def of(self, window_s: float) -> float:
        """How bursty counts over `window_s` seconds may well be: by the next longer scale."""
        place = bisect.bisect_left(SCALES_S, min(window_s, SCALES_S[-1]))
        return self.index[place] * (1.0 + DOUBT_BLOCKS / max(self.scales[place].blocks, 1.0))


def observe_second(known: Dispersion, arrivals: float) -> Dispersion:
    """`known` after one more second."""
    num_seconds, seen = known.num_seconds + 1, known.seen + arrivals
    scales, index = list(known.scales), list(known.index)
    below = 1.0
    for place, scale_s in enumerate(SCALES_S):
        if num_seconds % scale_s:
            break  # no longer block ends here either: each length divides the next
        scales[place] = scale = _add_block(scales[place], seen, scale_s, index[place])
        prior = PRIOR_BLOCKS * max(scale.counts, 1.0) * scale_s / BURST_MEMORY_S
        below = max(1.0, (scale.squares + prior * below) / (scale.counts + prior))
        index[place] = below
    return Dispersion(num_seconds, seen, tuple(scales), tuple(index))


def begin_after_gap(known: Dispersion) -> Dispersion:
    """`known` after missing seconds: new blocks begin, and all learnt values stay."""
    scales = tuple(Scale(0.0, None, it.squares, it.counts, it.blocks) for it in known.scales)
    return Dispersion(0, 0.0, scales, known.index)


def _add_block(scale: Scale, seen: float, scale_s: int, index: float) -> Scale:
    block = seen - scale.began_at
    if scale.last is None:
        return Scale(seen, block, scale.squares, scale.counts, scale.blocks)
    mean = (block + scale.last) / 2.0
    kept = math.exp(-scale_s / BURST_MEMORY_S)
    square = min((block - scale.last) ** 2 / 2.0, WIDEST * index * max(mean, 1.0))
    return Scale(
        began_at=seen,
        last=block,
        squares=scale.squares * kept + square,
        counts=scale.counts * kept + mean,
        blocks=scale.blocks * kept + 1.0,
    )


# Detection of a rise in arrivals: since when, and to what rate.
#
# CUSUM's statistic is the largest log likelihood ratio, over all instants at which a change may
# have been, of a higher rate against the base rate. Here it is computed as a maximum over windows
# that end now. Arrivals are not Poisson, so each window is judged by the dispersion of counts of
# the window's length. The higher rate is the likeliest one, but at least a doubling and more than
# the capacity carries: a smaller rise needs no act.
#
# Source: Page, Continuous inspection schemes, Biometrika 41 (1954). For windows: Lai, Sequential
# changepoint detection in quality control and dynamical systems, J. Royal Statistical Society B 57
# (1995). The scaling is quasi-likelihood, exact in its tail for Gamma times between arrivals.


WINDOWS_S = (*range(1, 17), 20, 24, 32)
LEAST_RATIO = 2.0
MOST_RATIO = 64.0
LEAST_EVIDENT = (LEAST_RATIO - 1.0) / math.log(LEAST_RATIO)  # x the base: no evidence below
# One arrival adds up to ln(ratio) at once: a threshold that is reached is overshot by some of it.
# Tuned as options.TESTS_PER_HOUR was. It matters less if arrivals are burstier.
OVERSHOT = 1.2
_REMEMBERED = {it: math.exp(-it / (2.0 * RATE_MEMORY_S)) for it in WINDOWS_S}


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """The likeliest rise: `evidence` is its log likelihood ratio, `since_s` how long ago it began.

    `base_per_s` is the rate before it. `per_s` is the rate since, drawn towards the base by its
    uncertainty.
    """

    evidence: float
    since_s: float
    base_per_s: float
    per_s: float


def find_likeliest_rise(
    counts: Sequence[float], rates: Rates, dispersion: Dispersion, carried_per_s: float
) -> Rise | None:
    """The window of arrivals by second, newest last, with the most evidence. None without evidence.

    `carried_per_s` is the rate that the capacity can carry. The base rate is taken as high as its
    standard error allows.
    """
    best: Rise | None = None
    mean_per_s = rates.per_s
    error_per_s = rates.error_per_s(dispersion.index[-1])
    reached, num = 0, 0.0
    for window_s in WINDOWS_S:
        if window_s > len(counts):
            break
        while reached < window_s:
            reached += 1
            num += counts[-reached]
        if num <= mean_per_s * window_s:
            continue  # no more than usual: the quick way out, as in most seconds
        base = _get_rate_before(num, window_s, rates) + error_per_s
        if num <= LEAST_EVIDENT * base * window_s:
            continue
        found = _detect_in_window(num, window_s, base, dispersion.of(window_s), carried_per_s)
        if found is not None and (best is None or found.evidence > best.evidence):
            best = found
    return best


def _detect_in_window(
    num: float, window_s: int, base: float, dispersion: float, carried_per_s: float
) -> Rise | None:
    least = max(LEAST_RATIO, min(MOST_RATIO, carried_per_s / base))
    ratio = max(least, min(MOST_RATIO, num / (base * window_s)))
    likelihood = num * math.log(ratio) - base * window_s * (ratio - 1.0)
    evidence = (likelihood + OVERSHOT) / dispersion
    if likelihood <= 0.0:
        return None
    drawn_s = math.sqrt(dispersion)
    return Rise(
        evidence=evidence,
        since_s=float(window_s),
        base_per_s=base,
        per_s=(num + drawn_s * base) / (window_s + drawn_s),
    )


def _get_rate_before(num: float, window_s: int, rates: Rates) -> float:
    """The base rate without the window itself."""
    remembered = _REMEMBERED[window_s]
    weight = max(rates.weight - window_s * remembered, 1.0)
    return (max(rates.arrivals - num * remembered, 0.0) + 0.5) / weight


# Control of false alarms: each one makes the policy ask for more evidence.
#
# An act on a rise is false when the arrivals of the next `JUDGED_S` would have fitted into the
# capacity before it. Each false alarm raises the threshold of evidence to the evidence of that act,
# and by a fifth at least. Time takes one such fifth back per wanted false alarm, and the first one
# is free. So in the long run there are no more false alarms than wanted, whatever the arrivals.
#
# Source: the step rule of adaptive conformal inference, Gibbs and Candes, NeurIPS 2021.


JUDGED_S = 120
MOST = math.log(32.0)
LEAST_STEP = math.log(1.2)
MOST_STEP = math.log(2.0)
HOUR_S = 3600.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """An act under judgement: arrivals and seconds since the act, and the rate carried before it.

    `excess` is the ratio of the act's evidence to the threshold.
    """

    excess: float
    carried_per_s: float
    arrivals: float = 0.0
    num_seconds: int = 0


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """`level` is the logarithm of the factor on the threshold of evidence. Below 0: no factor."""

    level: float = -LEAST_STEP
    num_false: int = 0
    trial: Trial | None = None

    @property
    def factor(self) -> float:
        """The factor on the usual threshold, at least 1."""
        return math.exp(max(0.0, self.level))


def update_doubt(known: Doubt, arrivals: float, per_hour: float) -> Doubt:
    """`known` after one more second of `arrivals`. `per_hour` false alarms are wanted."""
    if known.level <= -LEAST_STEP and known.trial is None:
        return known
    level = max(-LEAST_STEP, known.level - LEAST_STEP * per_hour / HOUR_S)
    trial, num_false = known.trial, known.num_false
    if trial is not None:
        trial = Trial(
            excess=trial.excess,
            carried_per_s=trial.carried_per_s,
            arrivals=trial.arrivals + arrivals,
            num_seconds=trial.num_seconds + 1,
        )
        if trial.num_seconds >= JUDGED_S:
            if trial.arrivals <= trial.carried_per_s * trial.num_seconds:
                step = min(MOST_STEP, max(LEAST_STEP, math.log(trial.excess)))
                level, num_false = min(MOST, level + step), num_false + 1
            trial = None
    return Doubt(level=level, num_false=num_false, trial=trial)


def begin_trial(known: Doubt, carried_per_s: float, excess: float) -> Doubt:
    """`known` after an act. An act that follows soon belongs to the act under judgement."""
    if known.trial is not None:
        return known
    trial = Trial(carried_per_s=carried_per_s, excess=excess)
    return Doubt(level=known.level, num_false=known.num_false, trial=trial)


PER_COPY = "ExpectedConcurrencyPerCopy"
PER_MODEL = "ExpectedConcurrencyPerModel"


def get_expected_concurrency(rates: Rates, per_s: float | None = None) -> float:
    """Calls under way, at least the present ones, once the arrivals (or `per_s`) have lasted.

    By Little's law. Zero while the duration of a call is not known.
    """
    arriving = rates.per_s if per_s is None else per_s
    return max(arriving * rates.mean_service_s, rates.in_flight)


def build_expected_metric(key: LoadKey) -> Metric:
    """What the expected concurrency of a component, or of a variant of models, is published as."""
    if key.component_name is not None:
        dimensions = {"InferenceComponentName": key.component_name}
        return Metric.of(OWN_NAMESPACE, PER_COPY, dimensions)
    dimensions = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
    return Metric.of(OWN_NAMESPACE, PER_MODEL, dimensions)


def build_expected_sample(
    key: LoadKey, expected: float, num_copies: int, second: int
) -> Sample | None:
    """One second's sample, of high resolution. None without a copy to divide by."""
    if num_copies <= 0:
        return None
    return Sample(
        metric=build_expected_metric(key),
        at=float(second),
        values=(expected / num_copies,),
        counts=(1.0,),
        resolution_s=1,
    )
