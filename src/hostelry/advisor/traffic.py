"""Traffic of a mix's models as traces for the simulator: from files, or drawn by shape and seed."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from hostelry.advisor.values import LEAST_HOURS, FitMix, FitModel, ModelTraffic, format_limit
from hostelry.base.errors import TerminalError
from hostelry.sim.arrivals import modulate_arrivals
from hostelry.sim.trace import BEGINS_AT, FloatArray, IntArray, Trace, build_block, open_trace

HOUR_S, DAY_S = 3600.0, 86_400.0
EDGE_S = 300.0  # a shape's rate is constant for this long
MAX_CALLS = 1_000_000
STEP_AT_S, STEP_LASTS_S, STEP_FACTOR = 600.0, 1200.0, 4.0
LARGE_GAP_SHARE, LARGE_GAP_S = 0.1, HOUR_S  # of a trace, so that a hole in it is reported


class DrawnCalls(msgspec.Struct, frozen=True):
    """Calls for one model: seconds of arrival, and tokens."""

    at_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray


class MixTraffic:
    """The traffic of a mix.

    Args:
        mix: its models.
        calls: the rows of each trace file, by file and model.
    """

    def __init__(self, mix: FitMix, calls: Mapping[Path, Mapping[str, DrawnCalls]]) -> None:
        self._mix = mix
        self._lasts_s = mix.hours * HOUR_S
        self._calls = calls

    def rate(self, model: FitModel) -> float:
        """Calls in a second, on average."""
        if model.traffic.trace is None:
            return model.traffic.per_hour / HOUR_S
        return len(self._get_rows(model).at_s) / self._lasts_s

    def mean_work_s(self, model: FitModel) -> float:
        """Seconds of an average call alone."""
        calls = None if model.traffic.trace is None else self._get_rows(model)
        if calls is None or not len(calls.at_s):
            num_in, num_out = model.traffic.input_tokens, model.traffic.output_tokens
        else:
            num_in = round(float(calls.input_tokens.mean()))
            num_out = round(float(calls.output_tokens.mean()))
        return model.service.work_s(num_in, num_out) * model.service.mean_factor

    def day(self, models: Sequence[FitModel], names: Sequence[str], seed: int) -> Trace:
        """The simulated period of the models, under `names`."""
        drawn = [self._draw(it, seed) for it in models]
        return _join(drawn, names, self._lasts_s)

    def step(self, models: Sequence[FitModel], names: Sequence[str], seed: int) -> Trace:
        """Each model's mean rate, and four times as much from minute 10 on."""
        drawn = []
        for model in models:
            rate = self.rate(model)
            edges = np.array([0.0, STEP_AT_S, STEP_LASTS_S])
            rates = np.array([rate, rate * STEP_FACTOR])
            drawn.append(_draw_shape(model, edges, rates, _source(model, seed, "step")))
        return _join(drawn, names, STEP_LASTS_S)

    def by_slot(self, model: FitModel) -> FloatArray:
        """The mean rate in each five minutes of the period, for finding peaks that coincide."""
        if model.traffic.trace is None:
            return _shape_rates(model.traffic, self._lasts_s)[1]
        edges = _edges(self._lasts_s)
        counts, _ = np.histogram(self._get_rows(model).at_s, edges)
        return counts / np.diff(edges)

    def _get_rows(self, model: FitModel) -> DrawnCalls:
        traffic = model.traffic
        assert traffic.trace is not None, "only traces have rows"
        by_model = self._calls[traffic.trace]
        if traffic.trace_model is not None:
            return by_model[traffic.trace_model]
        return _merge(list(by_model.values()))

    def _draw(self, model: FitModel, seed: int) -> DrawnCalls:
        if model.traffic.trace is not None:
            return self._get_rows(model)
        edges, rates = _shape_rates(model.traffic, self._lasts_s)
        return _draw_shape(model, edges, rates, _source(model, seed, "day"))


def load_traffic(mix: FitMix) -> tuple[MixTraffic, tuple[str, ...]]:
    """Read the traces that a mix names, and list notes on holes in them.

    Raises TerminalError for a trace that cannot be read, for rows that do not exist, and for more
    calls than are simulated.
    """
    calls: dict[Path, Mapping[str, DrawnCalls]] = {}
    notes: list[str] = []
    for path in dict.fromkeys(it.traffic.trace for it in mix.models):
        if path is not None:
            calls[path], found = _read_file(path, mix.hours * HOUR_S)
            notes += found
    for model in mix.models:
        _check_rows(model, calls)
    traffic = MixTraffic(mix, calls)
    total = sum(traffic.rate(it) for it in mix.models) * mix.hours * HOUR_S
    if total > MAX_CALLS:
        most = mix.hours * MAX_CALLS / total
        shorter = f"set hours to {format_limit(most)} or less" if most >= LEAST_HOURS else ""
        raise TerminalError(
            f"{mix.name}: the models get {total:,.0f} calls in hours = {mix.hours:g}; at most "
            f"{MAX_CALLS:,} are simulated: {shorter or 'give fewer calls'}"
        )
    if not total:
        raise TerminalError(
            f"{mix.name}: no model gets a call in hours = {mix.hours:g}: give per_hour or a trace"
        )
    return traffic, tuple(notes)


def _check_rows(model: FitModel, calls: Mapping[Path, Mapping[str, DrawnCalls]]) -> None:
    traffic = model.traffic
    if traffic.trace is None or traffic.trace_model is None:
        return
    known = calls[traffic.trace]
    if traffic.trace_model not in known:
        raise TerminalError(
            f"model {model.name!r}: traffic.model is {traffic.trace_model!r}, and {traffic.trace} "
            f"has no such rows in the period; it has {', '.join(list(known)[:5]) or 'none'}"
        )


def _read_file(path: Path, lasts_s: float) -> tuple[Mapping[str, DrawnCalls], list[str]]:
    trace = open_trace(path)
    columns: list[tuple[FloatArray, IntArray, IntArray, IntArray]] = []
    num = 0
    for block in trace.blocks:
        keep = block.at_s < lasts_s
        columns.append(
            (
                block.at_s[keep],
                block.input_tokens[keep],
                block.output_tokens[keep],
                block.model[keep],
            )
        )
        num += int(keep.sum())
        if not keep.all() or num > MAX_CALLS:
            break
    at_s, inputs, outputs, model = (np.concatenate(it) for it in zip(*columns, strict=True))
    found = {
        name: DrawnCalls(at_s[model == place], inputs[model == place], outputs[model == place])
        for place, name in enumerate(trace.models)
        if (model == place).any()
    }
    return found, _list_holes(path, at_s, lasts_s)


def _list_holes(path: Path, at_s: FloatArray, lasts_s: float) -> list[str]:
    """A note on the longest time without a call, if it may be missing data."""
    instants = np.concatenate([[0.0], at_s, [lasts_s]])
    gaps = np.diff(instants)
    place = int(gaps.argmax())
    gap_s = float(gaps[place])
    if gap_s < max(LARGE_GAP_S, LARGE_GAP_SHARE * lasts_s):
        return []
    begin_h = instants[place] / HOUR_S
    return [
        f"{path.name} has no call for {gap_s / HOUR_S:.1f} h from hour {begin_h:.1f} on. This "
        "counts as time without calls; if data is missing there, take another part."
    ]


def _merge(parts: Sequence[DrawnCalls]) -> DrawnCalls:
    at_s = np.concatenate([it.at_s for it in parts])
    order = np.argsort(at_s, kind="stable")
    return DrawnCalls(
        at_s[order],
        np.concatenate([it.input_tokens for it in parts])[order],
        np.concatenate([it.output_tokens for it in parts])[order],
    )


def _edges(lasts_s: float) -> FloatArray:
    return np.append(np.arange(0.0, lasts_s, EDGE_S), lasts_s)


def get_offset_s(time_zone: str) -> float:
    """Seconds by which a time zone's clock is ahead of UTC when traces begin."""
    begins = datetime.fromtimestamp(BEGINS_AT, UTC)
    offset = begins.astimezone(ZoneInfo(time_zone)).utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _shape_rates(traffic: ModelTraffic, lasts_s: float) -> tuple[FloatArray, FloatArray]:
    """Edges, and the rate between each two: a cosine with its top at the peak hour."""
    edges = _edges(lasts_s)
    middles = (edges[:-1] + edges[1:]) / 2
    peak_s = traffic.peak_hour * HOUR_S - get_offset_s(traffic.time_zone)
    wave = 1.0 + (traffic.peak_to_mean - 1.0) * np.cos(2 * np.pi * (middles - peak_s) / DAY_S)
    return edges, traffic.per_hour / HOUR_S * wave


def _draw_shape(
    model: FitModel, edges: FloatArray, rates: FloatArray, source: np.random.Generator
) -> DrawnCalls:
    at_s = modulate_arrivals(source, edges, rates, model.traffic.cv)
    ones = np.ones(len(at_s), dtype=np.int64)
    return DrawnCalls(at_s, ones * model.traffic.input_tokens, ones * model.traffic.output_tokens)


def _source(model: FitModel, seed: int, what: str) -> np.random.Generator:
    """A generator that depends on model and seed alone: options get the same calls."""
    return np.random.default_rng([seed, *f"{model.name}/{what}".encode()])


def _join(drawn: Sequence[DrawnCalls], names: Sequence[str], lasts_s: float) -> Trace:
    model = np.repeat(np.arange(len(drawn)), [len(it.at_s) for it in drawn])
    block = build_block(
        np.concatenate([it.at_s for it in drawn]),
        np.concatenate([it.input_tokens for it in drawn]),
        np.concatenate([it.output_tokens for it in drawn]),
        model.astype(np.int64),
    )
    return Trace(name="fit", blocks=[block], models=list(names), lasts_s=lasts_s)
