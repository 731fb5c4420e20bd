"""Delay until a step of load is detected, and the rate of spurious detections.

Arrivals and service times are drawn. Every detector sees the same seconds of the same streams.
Capacity is `COPIES` copies, of which the load before the step uses 70 %. A delay lasts from the
step, at any moment of a minute, to the first act. An act without a step is spurious, and its copies
are taken back after `BACK_S`. Steady streams last for hours, as load does, and count from near
their beginning. ``--tuning`` draws from seeds that the table does not use.

``python -m benchmarks.detection_study [--setting short|full] [--smoke] [--tuning] [--only NAME]``
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.aims import Finding, finding_rows
from benchmarks.detection_streams import (
    Seconds,
    Stream,
    code_stream,
    gamma_stream,
    mean_service_s,
    seconds_of,
    service_times,
)
from benchmarks.detectors import DETECTORS, Detector, Provisioned
from benchmarks.record import print_table, write_result

SEED = 20261122
TUNING_SEED = 77
COPIES = 4
USED = 0.7
BACK_S = 60
BEFORE_S = 900
AFTER_S = 240
HOURS = 10  # of a steady stream, at most
SETTLED_S = 300  # of a steady stream, before its acts count
STEP, CHAT_BURSTS = "4x step, 2/s", "4x step, 8/s, cv 3"
OURS = "responsive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much of each stream is drawn."""

    num_steps: int
    num_hours: int


SETTINGS = {
    "smoke": Setting(num_steps=2, num_hours=1),
    "short": Setting(num_steps=400, num_hours=20),
    "full": Setting(num_steps=1000, num_hours=100),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection_study", description=__doc__
    )
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="a few steps and one hour")
    parser.add_argument("--tuning", action="store_true", help="other seeds, nothing written")
    parser.add_argument("--only", help="a detector")
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    seed = arguments.seed or (TUNING_SEED if arguments.tuning else SEED)
    names = [it for it in DETECTORS if arguments.only in (None, it)]
    streams = streams_of(seed)
    rows = [row for it in streams for row in rows_of(it, names, SETTINGS[name], seed)]
    findings = [it for row in rows for it in findings_of(row)]
    for stream in streams:
        print_table(
            stream.name, [_drop_stream(row) for row in rows if row["stream"] == stream.name]
        )
    print_table("Against the aims", finding_rows(findings))
    if not arguments.tuning:
        measured = {"rows": rows, "findings": finding_rows(findings)}
        write_result("detection_study", name, seed, measured)


def streams_of(seed: int) -> list[Stream]:
    """The kinds of load that are studied."""
    return [
        gamma_stream(STEP, 2.0, 4.0, 1.0),
        gamma_stream("2x step, 8/s", 8.0, 2.0, 1.0),
        gamma_stream(CHAT_BURSTS, 8.0, 4.0, 3.0),
        code_stream("4x step, 2.6/s, as code, cv 13", 4, seed),
    ]


def rows_of(
    stream: Stream, names: Sequence[str], setting: Setting, seed: int
) -> list[dict[str, Any]]:
    """Each detector on one kind of stream."""
    there = provision_copies(stream)
    delays: dict[str, list[float]] = {name: [] for name in names}
    for number in range(setting.num_steps):
        source = np.random.default_rng([seed, number, 1])
        step_at_s = BEFORE_S + 60.0 * float(source.random())
        seconds = draw_stream(
            stream, source, step_at_s, BEFORE_S + AFTER_S - step_at_s, stream.ratio
        )
        for name in names:
            delays[name].append(delay_s(DETECTORS[name](there), seconds, step_at_s, there))
    acts, later = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    num_streams = math.ceil(setting.num_hours / HOURS)
    hours = setting.num_hours / num_streams
    for number in range(num_streams):
        source = np.random.default_rng([seed, number, 2])
        seconds = draw_stream(stream, source, SETTLED_S, hours * 3600.0, 1.0)
        for name in names:
            found = spurious(DETECTORS[name](there), seconds, there)
            acts[name] += len(found)
            later[name] += sum(it > len(seconds.arrivals) / 2 for it in found)
    return [
        {
            "stream": stream.name,
            "detector": name,
            "p50 s": _percentile(delays[name], 50),
            "p95 s": _percentile(delays[name], 95),
            "never %": 100.0 * float(np.mean(np.isinf(delays[name]))),
            "spurious/h": acts[name] / setting.num_hours,
            "2nd half": 2.0 * later[name] / setting.num_hours,
        }
        for name in names
    ]


def provision_copies(stream: Stream) -> Provisioned:
    """Copies of which the load before the step uses the share `USED`."""
    per_copy = stream.per_s / USED / COPIES
    return Provisioned(
        copies=COPIES,
        target=per_copy * mean_service_s(stream.lengths),
        calls_per_minute=per_copy * 60.0,
    )


def draw_stream(
    stream: Stream, source: np.random.Generator, before_s: float, after_s: float, ratio: float
) -> Seconds:
    """One stream, as the gateway would report it."""
    at_s = stream.draw(source, before_s, after_s, ratio)
    service_s = service_times(source, stream.lengths, len(at_s))
    return seconds_of(at_s, service_s, int(before_s + after_s))


def delay_s(detector: Detector, seconds: Seconds, step_at_s: float, there: Provisioned) -> float:
    """Seconds from the step to the first act, or infinity without an act."""
    for place in range(len(seconds.arrivals)):
        desired = detector.wanted(seconds, place, there.copies)
        ended_at_s = place + 1.0 + detector.late_s
        if desired > there.copies and place + 1.0 > step_at_s:
            return ended_at_s - step_at_s
    return float("inf")


def spurious(detector: Detector, seconds: Seconds, there: Provisioned) -> list[int]:
    """The seconds of acts on a stream that does not change, after `SETTLED_S`."""
    capacity, back_at, found = there.copies, 0, list[int]()
    for place in range(len(seconds.arrivals)):
        if place >= back_at:
            capacity = there.copies
        desired = detector.wanted(seconds, place, capacity)
        if desired > capacity:
            if capacity == there.copies and place >= SETTLED_S:
                found.append(place)
            capacity, back_at = desired, place + BACK_S
    return found


def findings_of(row: dict[str, Any]) -> list[Finding]:
    """The aims that our detector has on a kind of stream."""
    if row["detector"] != OURS:
        return []
    what, found = row["stream"], []
    if what == STEP:
        found.append(Finding(what=f"{what}: p50 s", value=row["p50 s"], at_most=3.0))
        found.append(Finding(what=f"{what}: p95 s", value=row["p95 s"], at_most=5.0))
    if what == CHAT_BURSTS:
        found.append(Finding(what=f"{what}: p95 s", value=row["p95 s"], at_most=10.0))
    found.append(Finding(what=f"{what}: spurious/h", value=row["spurious/h"], at_most=1.0))
    return found


def _percentile(values: Sequence[float], percent: float) -> float:
    """A percentile that is one of the values, since a finite delay and infinity have no mean."""
    return float(np.percentile(values, percent, method="higher"))


def _drop_stream(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "stream"}


if __name__ == "__main__":
    main()
