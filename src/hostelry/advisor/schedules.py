"""Schedules of copies: hours of the day in which a model may have no copy. PURE.

A copy that is warm all day costs its reservation also at night. With a schedule a model keeps its
copy in its busy hours, and scales to zero in its quiet hours, by the clock of its time zone. Models
of other time zones use the instances meanwhile.
"""

from collections.abc import Sequence

import numpy as np

from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan
from hostelry.advisor.policies import QuietHours
from hostelry.advisor.traffic import DAY_S, EDGE_S, HOUR_S, MixTraffic, get_offset_s
from hostelry.advisor.values import FitMix, FitModel
from hostelry.sim.trace import FloatArray

HOURS_A_DAY = 24
QUIET_SHARE = 0.25  # of the mean rate. An hour with less is quiet
LEAST_QUIET_HOURS = 3  # shorter times do not pay for the start of a copy
WITH_COPIES = (HostingOption.COMPONENTS, HostingOption.ADAPTERS)


def list_quiet_hours(
    plan: OptionPlan, mix: FitMix, traffic: MixTraffic
) -> tuple[QuietHours | None, ...]:
    """The quiet hours of each model of a plan. None of a model that needs no schedule.

    Only copies that are kept for the first request alone (`min_copies` 1) may go. Less than a day
    of traffic shows no hours of the day.
    """
    if plan.option not in WITH_COPIES or mix.hours * HOUR_S < DAY_S:
        return (None,) * len(plan.models)
    return tuple(
        _find_model_hours(model, plan.models, traffic)
        if model.adapter_of is None and model.min_copies == 1
        else None
        for model in plan.models
    )


def _find_model_hours(
    model: FitModel, models: Sequence[FitModel], traffic: MixTraffic
) -> QuietHours | None:
    mine = [it for it in models if model.name in (it.name, it.adapter_of)]
    zones = {it.traffic.time_zone for it in mine if traffic.rate(it) > 0.0}
    zone = min(zones) if len(zones) == 1 else "UTC"
    rates = np.sum([traffic.by_slot(it) for it in mine], axis=0)
    found = find_quiet_hours(_get_rates_by_hour(rates, get_offset_s(zone)))
    if found is None:
        return None
    return QuietHours(begin_hour=found[0], end_hour=found[1], time_zone=zone)


def _get_rates_by_hour(rates: FloatArray, offset_s: float) -> FloatArray:
    """The mean rate in each hour of the day. The slots begin at midnight of UTC."""
    middles_s = (np.arange(len(rates)) + 0.5) * EDGE_S + offset_s
    hours = (middles_s // HOUR_S % HOURS_A_DAY).astype(np.int64)
    sums = np.bincount(hours, rates, HOURS_A_DAY)
    counts = np.bincount(hours, minlength=HOURS_A_DAY)
    by_hour: FloatArray = sums / np.maximum(1, counts)
    return by_hour


def find_quiet_hours(by_hour: FloatArray) -> tuple[int, int] | None:
    """The longest time of quiet hours, which may pass midnight: its first hour, and its end.

    None if no time is long enough, or if every hour is quiet.
    """
    is_quiet = [bool(it) for it in by_hour < QUIET_SHARE * by_hour.mean()]
    if all(is_quiet):
        return None
    best = (0, 0)
    for begin in range(HOURS_A_DAY):
        length = 0
        while is_quiet[(begin + length) % HOURS_A_DAY]:
            length += 1
        best = max(best, (length, -begin))
    length, begin = best[0], -best[1]
    if length < LEAST_QUIET_HOURS:
        return None
    return begin, (begin + length) % HOURS_A_DAY
