"""Measured values in the mixes of examples/fit, and the advice for each mix as plain numbers.

A model table with the key `measured` has the values of a scikit-learn model, one with `calibration`
the values of the LLM. Tables with neither rest on assumptions, and are left as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from hostelry.advisor.advice import GroupAdvice, Progress, SimulatedOption, advise
from hostelry.advisor.chart import build_svg
from hostelry.advisor.mix_file import read_mix
from hostelry.advisor.ranking import RankedOption
from hostelry.advisor.traffic import load_traffic
from hostelry.advisor.values import FitAxis, FitMix
from hostelry.sim.service import ServiceModel

CALIBRATION = "llm.json"
STORIES = ("summariser", "chatbots", "images")
SMALL_STORIES = ("summariser-small", "chatbots-small", "chatbots-adapters", "images-small")
PATTERNS = ("continuous", "peaks", "infrequent", "offline", "many", "frameworks")
MIXES = (*STORIES, *SMALL_STORIES, *PATTERNS)
CPUS = 2.0  # of the instance that was measured
LEAST_MB = 1.0
FILE_MB, MEBI = 1e6, 2**20
STREAMS = 4
Rows = Mapping[str, Mapping[str, Any]]


def index_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The measured rows by their option."""
    return {it["option"]: it for it in rows}


def list_model_values(rows: Rows) -> dict[str, tuple[str, str]]:
    """The values of a scikit-learn model as TOML, each with its source."""
    own, shared, cold = rows["dedicated"], rows["multi-model"], rows["serverless"]
    seconds = own["call ms"] / 1000
    in_progress = own["calls a second"] * seconds / CPUS
    load_s = (shared["cold call ms"] - shared["call ms"] - shared["download ms"]) / 1000
    first_s = own["first answer s"] - own["copy start s"]
    held = (shared["memory MB"] - own["memory MB"]) / (shared["models"] - 1)
    return {
        "seconds": (show(seconds), "call of a dedicated endpoint, gateway included"),
        "spread": (show_spread(own), "calls of a dedicated endpoint"),
        "concurrency": (str(max(1, round(in_progress))), "calls in progress at the best rate"),
        "memory_mb": (show_mb(own["memory MB"]), "PSS of a dedicated endpoint"),
        "loaded_mb": (show_mb(held), "PSS of a further model of a multi-model endpoint"),
        "disk_mb": (show_mb(shared["archive MB"]), "archive of a model"),
        "start_s": (show(own["copy start s"]), "start of a dedicated endpoint's copy"),
        "warm_start_s": (show(cold["cold call ms"] / 1000), "serverless call from zero"),
        "instance_start_s": (show(max(0.0, first_s)), "first answer, without the copy's start"),
        "download_s": (show(shared["download ms"] / 1000), "archive from S3"),
        "load_s": (show(max(0.001, load_s)), "first call of a multi-model endpoint's model"),
    }


def list_llm_values(rows: Rows) -> dict[str, tuple[str, str]]:
    """The values of the LLM that are not in its calibration."""
    return {"memory_mb": (show_mb(rows["adapters"]["memory MB"]), "PSS with its adapters")}


def build_calibration(rows: Rows, date: str, machine: str) -> ServiceModel:
    """The service times of the LLM with an adapter."""
    row = rows["adapters"]
    token_s, start_s = row["token ms"] / 1000, row["copy start s"]
    return ServiceModel(
        prefill_s=round(max(0.0, row["first token ms"] / 1000 - token_s), 5),
        prefill_s_per_token=0.0,
        token_s=round(token_s, 5),
        max_concurrency=STREAMS,
        slowdown=((1, 1.0), (STREAMS, round(row["slowdown of 4"], 3))),
        warm_start_s=round(start_s, 2),
        cold_start_s=round(start_s, 2),
        instance_start_s=round(max(0.0, row["first answer s"] - start_s), 2),
        origin=f"measured {date}: demo LLM with an adapter, {machine}",
    )


def fill_mix(text: str, rows: Rows, date: str) -> str:
    """A mix with the measured values in the lines that have such a key."""
    predictive = {**list_model_values(rows), "measured": (f'"{date}"', "")}
    llm = list_llm_values(rows)
    return "".join(
        fill_table(table, llm if "\ncalibration = " in table else predictive)
        if "\nmeasured = " in table or "\ncalibration = " in table
        else table
        for table in split_tables(text)
    )


def split_tables(text: str) -> Iterator[str]:
    """The text in parts, of which each but the first begins with the heading of a table."""
    first, *others = text.split("\n[[")
    yield first
    yield from (f"\n[[{it}" for it in others)


def fill_table(table: str, values: Mapping[str, tuple[str, str]]) -> str:
    """A table with other values. An adapter keeps its memory: the base's is measured."""
    lines = []
    for line in table.split("\n"):
        key = line.partition(" = ")[0]
        is_kept = key not in values or (key == "memory_mb" and "\nadapter_of = " in table)
        value, source = ("", "") if is_kept else values[key]
        lines.append(line if is_kept else f"{key} = {value}{f'    # {source}' if source else ''}")
    return "\n".join(lines)


def show(value: float) -> str:
    """A number with three digits."""
    return f"{float(f'{value:.3g}'):g}"


def show_mb(megabytes: float) -> str:
    """Megabytes of 10^6 bytes in the unit of the mixes, 2^20 bytes."""
    return show(max(LEAST_MB, megabytes * FILE_MB / MEBI))


def show_spread(row: Mapping[str, Any]) -> str:
    """Quantiles of calls as factors of their median, which do not fall."""
    points = {0.0: "call min ms", 0.5: "call ms", 0.9: "call p90 ms", 0.99: "call p99 ms"}
    factors = {share: row[key] / row["call ms"] for share, key in points.items()}
    factors[1.0] = row["call max ms"] / row["call ms"]
    return "[" + ", ".join(f"[{share:g}, {show(it)}]" for share, it in factors.items()) + "]"


def advise_mix(folder: Path, name: str, progress: Progress) -> tuple[dict[str, Any], str]:
    """The advice for a mix as plain numbers, and its chart. A mix here is one group."""
    mix = read_mix(folder / f"{name}.toml")
    traffic, _ = load_traffic(mix)
    (advice,) = advise(mix, traffic, progress)
    return report_advice(mix, advice), build_svg([advice])


def report_advice(mix: FitMix, advice: GroupAdvice) -> dict[str, Any]:
    """The numbers of an advice that the page has."""
    pick = advice.ranking.pick
    return {
        "models": len(mix.models),
        "hours": mix.hours,
        "is_measured": all(it.is_measured for it in mix.models),
        "pick": None if pick is None else pick.option.value,
        "weights": {axis.value: it.weight for axis, it in mix.axes.items()},
        "sensitivity": advice.ranking.sensitivity,
        "options": {
            ranked.option.value: report_option(ranked, advice.simulated[ranked.option])
            for ranked in advice.ranking.ranked
        },
        "refused": {it.value: reasons[0] for it, reasons in advice.refused.items()},
        "not_ranked": {it.value: reason for it, reason in advice.not_simulated.items()},
    }


def report_option(ranked: RankedOption, simulated: SimulatedOption) -> dict[str, Any]:
    """The numbers of an option."""
    trials = simulated.trials

    def mean(name: str) -> float | None:
        found = [it for one in trials if (it := getattr(one, name)) is not None]
        return float(f"{fmean(found):.6g}") if len(found) == len(trials) else None

    num_calls = sum(it.num_calls for it in trials)
    answered = sum(it.num_answered for it in trials) / max(1, num_calls)
    return {
        "shortfall": ranked.shortfall,
        "unacceptable": [it.value for it in ranked.unacceptable],
        "scores": {
            axis.value: None if it.score is None else round(it.score, 4)
            for axis, it in simulated.axes.items()
        },
        "texts": {axis.value: it.text for axis, it in simulated.axes.items()},
        "num_objects": simulated.axes[FitAxis.OPERATIONS].raw,
        "answered": round(answered, 6),
        **{it: mean(it) for it in ("cost", "met_share", "p50_s", "p99_s", "scale_s", "hit_rate")},
        "instance_h": mean("instance_h"),
    }


def encode_calibration(service: ServiceModel) -> bytes:
    """The calibration as a file."""
    return msgspec.json.format(msgspec.json.encode(service), indent=2) + b"\n"
