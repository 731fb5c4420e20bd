"""The responsive policy: one second's load in, a new state and perhaps a request out."""

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from hostelry.base.printable import short_number
from hostelry.domain.load import SecondLoad
from hostelry.domain.scaling import NotScaled
from hostelry.scaling.decide.decision import Capacity, Decision
from hostelry.scaling.decide.responsive.estimates import (
    WINDOWS_S,
    Dispersion,
    Doubt,
    Rates,
    Rise,
    Second,
    average_second,
    begin_after_gap,
    begin_trial,
    find_likeliest_rise,
    get_expected_concurrency,
    jump_to_level,
    observe_second,
    update_doubt,
)
from hostelry.scaling.decide.responsive.options import (
    MINUTE_S,
    ResponsiveOptions,
    limit_copies,
    may_act,
    select_recent_acts,
)

LEVEL_S = 30  # for which the level after a rise is learnt


class ResponsiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The learnt state of a target. A fresh state begins with the warm-up.

    `second` is the newest that was counted, `num_seconds` how many were. `counts` are arrivals by
    second since the last act or gap, as many as windows need. `acts` are the instants of acts that
    limits count. `reported_full_at` is when a full capacity was last reported, `idle_since` since
    when one copy less would do.
    """

    options: ResponsiveOptions
    second: int | None = None
    num_seconds: int = 0
    counts: tuple[float, ...] = ()
    rates: Rates = msgspec.field(default_factory=Rates)
    dispersion: Dispersion = msgspec.field(default_factory=Dispersion)
    doubt: Doubt = msgspec.field(default_factory=Doubt)
    acts: tuple[float, ...] = ()
    reported_full_at: float | None = None
    idle_since: int | None = None

    @property
    def is_warm(self) -> bool:
        """Whether enough is known to distinguish a change from chance."""
        return self.num_seconds >= self.options.warm_up_s

    @property
    def threshold(self) -> float:
        """The evidence from which a rise is believed."""
        return self.options.threshold * self.doubt.factor

    @property
    def deviations(self) -> float:
        """The required distance of a slow average from capacity, in standard deviations.

        One deviation while the level after a rise is learnt, because the rise is certain then.
        """
        trial = self.doubt.trial
        if trial is not None and trial.num_seconds <= LEVEL_S:
            return 1.0
        return self.options.deviations * math.sqrt(self.doubt.factor)


# Signals that capacity is too small: each trigger reads one, none of them acts.
#
# | trigger | condition |
# | --- | --- |
# | `find_age_need` | a call waits `queue_age_s`, and copies on their way would not carry the load |
# | `find_rise_need` | evidence of a rise at the threshold, to more than the capacity carries |
# | `find_sustained_need` | slow averages, less their errors, above the load that capacity carries |
# | `has_idle_copy` | one copy less would carry the highest likely load, with a tenth to spare |


class CapacityNeed(msgspec.Struct, frozen=True, kw_only=True):
    """A needed capacity: for `concurrency`, and at least `least` copies.

    `since_s` is how long ago the load rose. `is_certain`: the need was observed. Otherwise it was
    concluded, and the act is judged afterwards. `excess` is the ratio of the evidence to the
    threshold. `per_s` and `known_s` are the new level of arrivals and the seconds that it was seen
    for, if the rate itself changed.
    """

    concurrency: float
    since_s: float
    reason: str
    is_certain: bool = False
    excess: float = 1.0
    least: int = 0
    signal: Mapping[str, float] = msgspec.field(default_factory=dict)
    per_s: float | None = None
    known_s: float = 0.0


def get_carried(options: ResponsiveOptions, capacity: Capacity) -> float:
    """The concurrency that the wanted capacity carries at the target."""
    return options.target * capacity.desired


def find_age_need(
    load: SecondLoad, options: ResponsiveOptions, capacity: Capacity
) -> CapacityNeed | None:
    """A call has waited too long for a copy, and no more are on their way than it needs."""
    if not load.held or load.oldest_held_s < options.queue_age_s:
        return None
    under_way = max(load.in_flight_mean, float(load.held))
    if capacity.desired > capacity.serving and under_way <= get_carried(options, capacity):
        return None
    return CapacityNeed(
        concurrency=under_way,
        least=capacity.desired + 1,
        is_certain=True,
        since_s=load.oldest_held_s,
        reason=(
            f"{load.held} calls wait for a copy, the first for {load.oldest_held_s:.1f} s "
            f"(limit {options.queue_age_s:g} s)"
        ),
    )


def find_rise_need(
    rise: Rise | None, state: ResponsiveState, capacity: Capacity
) -> CapacityNeed | None:
    """Arrivals have risen for certain, to more than the capacity carries."""
    if rise is None or rise.evidence < state.threshold:
        return None
    expected = rise.per_s * state.rates.mean_service_s
    if expected <= get_carried(state.options, capacity):
        return None
    return CapacityNeed(
        concurrency=expected,
        since_s=rise.since_s,
        reason=(
            f"arrivals rose from {short_number(rise.base_per_s)} to {short_number(rise.per_s)} a "
            f"second within {rise.since_s:g} s (evidence {rise.evidence:.1f}, "
            f"threshold {state.threshold:.1f})"
        ),
        signal={"evidence": rise.evidence, "window_s": rise.since_s},
        excess=rise.evidence / state.threshold,
        per_s=rise.per_s,
        known_s=rise.since_s,
    )


def find_sustained_need(state: ResponsiveState, capacity: Capacity) -> CapacityNeed | None:
    """The need if the slow averages, less their errors, are above the capacity. None otherwise."""
    rates, dispersion = state.rates, state.dispersion.index[-1]
    limit = get_carried(state.options, capacity)
    if get_expected_concurrency(rates) <= limit:
        return None
    surely_per_s = rates.per_s - state.deviations * rates.error_per_s(dispersion)
    surely = rates.in_flight - state.deviations * rates.in_flight_error(dispersion)
    by_rate = surely_per_s * rates.mean_service_s > limit
    if not by_rate and surely <= limit:
        return None
    expected = get_expected_concurrency(rates)
    what = "arrivals" if by_rate else "calls under way"
    return CapacityNeed(
        concurrency=expected,
        since_s=0.0,
        reason=f"{what} have stayed above what {capacity.desired} copies carry",
        signal={"surely_per_s": surely_per_s, "surely_in_flight": surely},
    )


def has_idle_copy(state: ResponsiveState, capacity: Capacity) -> bool:
    """Whether one copy less would surely carry the expected load, with a tenth to spare."""
    rates, options, dispersion = state.rates, state.options, state.dispersion.index[-1]
    highest_per_s = rates.per_s + options.deviations * rates.error_per_s(dispersion)
    highest = max(highest_per_s * rates.mean_service_s, rates.in_flight)
    fewer = capacity.clamp(capacity.desired - 1)
    return fewer < capacity.desired and highest <= 0.9 * options.target * fewer


def count_needed_copies(need: CapacityNeed, options: ResponsiveOptions) -> int:
    """How many copies carry the need at the target."""
    return max(need.least, math.ceil(need.concurrency / options.target - 1e-9))


RECENT_S = 10  # a second that lies no further back was reported late, or twice
MOST_TIMES = 1.5  # the factor by which a single wild second may move the base rate
KEPT_S = 900.0  # as long as AWS's policies look back before they scale in
NUM_COUNTS = WINDOWS_S[-1]
KEEP_EVERY_S = 10  # a proposal is forgotten after PROPOSAL_S


def step(
    state: ResponsiveState, second_load: SecondLoad, capacity: Capacity, now: float
) -> tuple[ResponsiveState, Decision | None]:
    """The state after one more second of load, and a decision, if any.

    Seconds come in order. An earlier second changes nothing. Missing seconds were not seen, and are
    not zeros. Numbers that are not finite count as missing. `signal["rose_s_ago"]` of a decision is
    how long before the end of this second the load rose.

    The policy acts when the expected load is surely more than the capacity carries. A change of
    arrivals alone does not make it act. It leaves scale-in to others, unless `scale_in_after_s` is
    set.

    | need | decision |
    | --- | --- |
    | a call waits too long (`find_age_need`) | more copies, at once, also during the warm-up |
    | arrivals rose for certain (`find_rise_need`) | copies for the new rate |
    | averages surely above capacity (`find_sustained_need`) | copies for them |
    | any of these, within `APART_S` of an act or with too many acts this minute | nothing |
    | any of these at the maximum | AlreadyAtMaxCapacity, once a minute |
    | none, `scale_in_after_s` of too little load | one copy less |
    """
    known = learn(state, second_load)
    if known is state:
        return state, None
    rise = _find_rise(known, capacity)
    need = _find_need(known, rise, second_load, capacity)
    if need is None:
        return _scale_in(known, second_load, capacity)
    return _scale_out(known, need, second_load, capacity, now)


def propose_capacity(
    state: ResponsiveState, load: SecondLoad, capacity: Capacity, now: float, *, is_tracked: bool
) -> tuple[ResponsiveState, Decision | None, bool]:
    """The state after one more second, the decision to propose, and whether it may lower.

    | `step` decides | `is_tracked` by target tracking | proposed |
    | --- | --- | --- |
    | more, or that it is full | either | that |
    | less | no | that. It may lower |
    | less | yes | nothing: target tracking scales in |
    | nothing | either | each `KEEP_EVERY_S` the capacity still needed after an act |
    """
    after, decision = step(state, load, capacity, now)
    if decision is None:
        is_due = load.second % KEEP_EVERY_S == 0
        return after, propose_kept_capacity(after, capacity, now) if is_due else None, False
    lowers = decision.desired < capacity.desired
    return after, None if lowers and is_tracked else decision, lowers


def get_expected(state: ResponsiveState) -> float:
    """The expected concurrency, as it is published."""
    return get_expected_concurrency(state.rates)


def learn(state: ResponsiveState, load: SecondLoad) -> ResponsiveState:
    """The state after this second without any decision. Unchanged if the second is not new."""
    numbers = (
        *(load.arrivals, load.finished, load.service_s, load.in_flight_mean),
        *(load.held, load.oldest_held_s),
    )
    if not all(0.0 <= it < math.inf for it in numbers):
        return state
    if state.second is not None and state.second - RECENT_S < load.second <= state.second:
        return state
    follows = state.second is None or load.second == state.second + 1
    counts = state.counts if follows else ()
    before = state.dispersion if follows else begin_after_gap(state.dispersion)
    second = Second(
        arrivals=float(load.arrivals),
        finished=float(load.finished),
        service_s=load.service_s,
        in_flight=load.in_flight_mean,
    )
    return ResponsiveState(
        options=state.options,
        second=load.second,
        num_seconds=state.num_seconds + 1,
        counts=(*counts[-NUM_COUNTS + 1 :], second.arrivals),
        rates=average_second(state.rates, second, state.dispersion.index[0]),
        dispersion=observe_second(before, second.arrivals),
        doubt=update_doubt(state.doubt, second.arrivals, state.options.false_alarms_per_hour),
        acts=state.acts,
        reported_full_at=state.reported_full_at,
        idle_since=state.idle_since,
    )


def propose_kept_capacity(
    state: ResponsiveState, capacity: Capacity, now: float
) -> Decision | None:
    """The capacity still needed, for some time after an act. None: no opinion.

    Proposed repeatedly against policies that scale in by averages which the load has outrun.
    """
    if not state.acts or now - state.acts[-1] > KEPT_S or not state.is_warm:
        return None
    concurrency = get_expected_concurrency(state.rates)
    needed = capacity.clamp(math.ceil(concurrency / state.options.target - 1e-9))
    if needed <= capacity.minimum:
        return None
    return Decision(
        desired=min(needed, capacity.desired),
        reason=f"{short_number(concurrency)} calls at once are expected since the last scale-out",
        signal={"expected_concurrency": concurrency, "target_per_copy": state.options.target},
    )


def _find_rise(state: ResponsiveState, capacity: Capacity) -> Rise | None:
    service_s = state.rates.mean_service_s
    if not state.is_warm or service_s <= 0.0 or not state.counts[-1]:
        return None  # a second without arrivals never adds to the evidence
    carried_per_s = get_carried(state.options, capacity) / service_s
    return find_likeliest_rise(state.counts, state.rates, state.dispersion, carried_per_s)


def _find_need(
    state: ResponsiveState, rise: Rise | None, load: SecondLoad, capacity: Capacity
) -> CapacityNeed | None:
    need = find_age_need(load, state.options, capacity)
    if need is not None or not state.is_warm:
        return need
    need = find_rise_need(rise, state, capacity)
    if need is not None:
        return need
    return find_sustained_need(state, capacity)


def _scale_out(
    state: ResponsiveState, need: CapacityNeed, load: SecondLoad, capacity: Capacity, now: float
) -> tuple[ResponsiveState, Decision | None]:
    options = state.options
    acts = select_recent_acts(state.acts, now)
    if not may_act(acts, options, now):
        return state, None
    asked = count_needed_copies(need, options)
    desired = limit_copies(asked, capacity, options, load.oldest_held_s)
    signal = {**_build_signal(state, load, capacity), **need.signal}
    signal |= {"needed_concurrency": need.concurrency, "rose_s_ago": need.since_s}
    if desired > capacity.desired:
        armed = replace(_rearm(state, need, desired), acts=(*acts, now), idle_since=None)
        if not need.is_certain:
            carried_per_s = get_carried(options, capacity) / state.rates.mean_service_s
            armed = replace(armed, doubt=begin_trial(state.doubt, carried_per_s, need.excess))
        return armed, Decision(
            desired=desired, reason=_build_reason(need, capacity, asked, desired), signal=signal
        )
    if asked <= capacity.desired or _was_reported_lately(state.reported_full_at, now):
        return state, None
    full = NotScaled(
        code="AlreadyAtMaxCapacity",
        max_capacity=capacity.maximum,
        min_capacity=capacity.minimum,
        current_capacity=capacity.desired,
    )
    reason = f"{need.reason}, but the maximum is {capacity.maximum}"
    after = _rearm(replace(state, reported_full_at=now), need, capacity.desired)
    return after, Decision(
        desired=capacity.desired, reason=reason, signal=signal, not_scaled=(full,)
    )


def _was_reported_lately(at: float | None, now: float) -> bool:
    return at is not None and 0.0 <= now - at < MINUTE_S


def _rearm(state: ResponsiveState, need: CapacityNeed, copies: int) -> ResponsiveState:
    """The state ready for the next change, with the new level as its base."""
    if need.per_s is None:
        return state
    covered_per_s = state.options.target * copies / state.rates.mean_service_s
    level_per_s = min(need.per_s, MOST_TIMES * covered_per_s)
    rates = jump_to_level(state.rates, level_per_s, need.known_s)
    return replace(state, rates=rates, counts=(), dispersion=begin_after_gap(state.dispersion))


def _scale_in(
    state: ResponsiveState, load: SecondLoad, capacity: Capacity
) -> tuple[ResponsiveState, Decision | None]:
    after_s = state.options.scale_in_after_s
    if after_s is None or not state.is_warm:
        return state, None
    if load.held or not has_idle_copy(state, capacity):
        return (state if state.idle_since is None else replace(state, idle_since=None)), None
    since = load.second if state.idle_since is None else min(state.idle_since, load.second)
    if load.second - since < after_s:
        return replace(state, idle_since=since), None
    fewer = capacity.clamp(capacity.desired - 1)
    return replace(state, idle_since=load.second), Decision(
        desired=fewer,
        reason=f"{fewer} copies have been enough for {after_s:g} s",
        signal=_build_signal(state, load, capacity),
    )


def _build_reason(need: CapacityNeed, capacity: Capacity, asked: int, desired: int) -> str:
    per_copy = need.concurrency / max(capacity.desired, 1)
    text = (
        f"{need.reason}: {short_number(need.concurrency)} calls at once are expected, "
        f"{short_number(per_copy)} per copy"
    )
    return (
        text
        if asked == desired
        else f"{text}; {asked} copies would be needed, {desired} are allowed"
    )


def _build_signal(
    state: ResponsiveState, load: SecondLoad, capacity: Capacity
) -> Mapping[str, float]:
    rates, options = state.rates, state.options
    return {
        "arrivals_per_s": float(load.arrivals),
        "base_per_s": rates.per_s,
        "dispersion": state.dispersion.index[-1],
        "service_s": rates.mean_service_s,
        "expected_concurrency": get_expected_concurrency(rates),
        "in_flight": load.in_flight_mean,
        "held": float(load.held),
        "oldest_held_s": load.oldest_held_s,
        "target_per_copy": options.target,
        "capacity": float(capacity.desired),
        "serving": float(capacity.serving),
        "threshold": state.threshold,
        "deviations": state.deviations,
        "false_alarms": float(state.doubt.num_false),
    }
