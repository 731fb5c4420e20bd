"""Recorded calls as arrivals: as many as were counted, at random instants of their period. PURE."""

from collections.abc import Mapping

import numpy as np

from hostelry.advisor.live.records import PART_S, LiveRecords, RecordedModel, Series
from hostelry.advisor.live.stretch import Span
from hostelry.advisor.traffic import DrawnCalls
from hostelry.sim.trace import FloatArray, Trace, build_block

SEED = 20261130


def draw_calls(records: LiveRecords, span: Span) -> Mapping[str, DrawnCalls]:
    """The calls of each model, in seconds from the beginning of the span."""
    found: dict[str, DrawnCalls] = {}
    for unit in records.units:
        source = np.random.default_rng([SEED, *unit.endpoint.encode()])
        by_records: dict[int, list[RecordedModel]] = {}
        for model in unit.models:
            by_records.setdefault(id(model.records), []).append(model)
        for models in by_records.values():
            at_s = _draw(source, span.select(models[0].records.calls), records.period_s, span)
            chosen = _choose(source, models, at_s + span.since)
            for place, model in enumerate(models):
                mine = at_s[chosen == place]
                ones = np.ones(len(mine), dtype=np.int64)
                found[model.name] = DrawnCalls(mine, 0 * ones, ones)
    return found


def _draw(source: np.random.Generator, calls: Series, period_s: float, span: Span) -> FloatArray:
    starts = np.array(sorted(calls))
    counts = np.array([round(calls[it]) for it in starts], dtype=np.int64)
    begins = np.repeat(starts - span.since, counts)
    at_s: FloatArray = np.sort(begins + source.random(len(begins)) * period_s)
    return at_s


def _choose(
    source: np.random.Generator, models: list[RecordedModel], at: FloatArray
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The model of each call: by the requests of each in the call's period of usage."""
    if len(models) == 1:
        return np.zeros(len(at), dtype=np.int64)
    parts = [it.part or {} for it in models]
    total = np.array([sum(it.values()) for it in parts])
    chosen = np.zeros(len(at), dtype=np.int64)
    period = np.floor(at / PART_S) * PART_S
    for start in np.unique(period).tolist():
        weights = np.array([it.get(start, 0.0) for it in parts])
        if not weights.sum():  # requests count for usage when they end
            weights = total if total.sum() else np.ones(len(models))
        mine = period == start
        chosen[mine] = source.choice(len(models), int(mine.sum()), p=weights / weights.sum())
    return chosen


def build_trace(calls: Mapping[str, DrawnCalls], lasts_s: float) -> Trace:
    """The calls as one trace, for a file."""
    names = list(calls)
    numbers = np.repeat(np.arange(len(names)), [len(it.at_s) for it in calls.values()])
    block = build_block(
        np.concatenate([it.at_s for it in calls.values()]),
        np.concatenate([it.input_tokens for it in calls.values()]),
        np.concatenate([it.output_tokens for it in calls.values()]),
        numbers.astype(np.int64),
    )
    return Trace(name="recorded", blocks=[block], models=names, lasts_s=lasts_s)
