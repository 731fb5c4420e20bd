"""Verdicts on simulated versions whose truth is known, compared with an alarm with a fixed bake.

Both versions get requests at once, the new one a tenth of them. Errors are drawn with the version's
rate, latencies from a lognormal distribution, scaled for a slower version. The verdict
(`hostelry compare` at its defaults) is read after each second, for ten minutes at most. The alarm
is the usual alarm of updates. It goes off if more than 5 % of the new version's requests in a
minute failed, or if their p95 is over 1.5 times the old version's. The bake is five minutes.

Updates: a canary of a tenth for five minutes, then all traffic on trial for five. With the verdict
as the gate (`hostelry:verdict` = on, no alarm) each step is decided for itself. The counts of a
second are known two seconds later. The same update also runs with the alarm and its full waits.

``python -m benchmarks.rollout_verdict [--setting short|full] [--smoke]``
"""

import argparse
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.record import print_table, write_result
from hostelry.comparison.fleet_verdict import (
    FleetEvidence,
    WatchedUpdate,
    add_old_second,
    add_step_second,
    step_verdict,
)
from hostelry.comparison.verdict import VersionEvidence, VersionOutcome, compare_versions
from hostelry.domain.load import ConfigLoad, Distribution, LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import Allowance
from hostelry.reconcile.plan.guards import LEAST_STEP_S

SEED = 20261125
KEY = LoadKey(scope=Scope("123456789012", "us-west-2"), endpoint_name="e", variant_name="v")
MEAN_US, SPREAD = math.log(50_000), 0.4
LATEST_S, BAKE_S, MINUTE_S = 600, 300, 60
ALARM_ERRORS, ALARM_LATENCY = 0.05, 1.5
NEW_SHARE = 0.1
COMING_S, STEP_S, KNOWN_AFTER_S = 60, 300, 2  # of an update. At first, only the old fleet serves
KEPT = 64  # buckets of an octave, as in the gateway's meter
NOTHING = SecondLoad(key=KEY, second=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Both versions: error rates, how much slower the new one is, and whether it is too bad."""

    name: str
    old_errors: float = 0.001
    new_errors: float = 0.001
    slower: float = 1.0
    is_worse: bool = False


TRUTHS = (
    Truth(name="the same"),
    Truth(name="the same, 2 % errors", old_errors=0.02, new_errors=0.02),
    Truth(name="just within what is allowed", new_errors=0.011, slower=1.25),
    Truth(name="faster", slower=0.7),
    Truth(name="every request fails", new_errors=1.0, is_worse=True),
    Truth(name="20 % errors", new_errors=0.2, is_worse=True),
    Truth(name="5 % errors", new_errors=0.05, is_worse=True),
    Truth(name="2.5 % errors", new_errors=0.025, is_worse=True),
    Truth(name="3 times slower", slower=3.0, is_worse=True),
    Truth(name="1.5 times slower", slower=1.5, is_worse=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How many rollouts of each truth, at which rates of requests a second."""

    runs: int
    rates: tuple[int, ...]


SETTINGS = {
    "smoke": Setting(runs=2, rates=(100,)),
    "short": Setting(runs=40, rates=(20, 200)),
    "full": Setting(runs=400, rates=(20, 200)),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rollout_verdict", description=__doc__
    )
    parser.add_argument("--setting", choices=("short", "full"), default="short")
    parser.add_argument("--smoke", action="store_true", help="few runs")
    arguments = parser.parse_args(argv)
    name = "smoke" if arguments.smoke else arguments.setting
    setting = SETTINGS[name]
    rows = [row(truth, rate, setting.runs) for rate in setting.rates for truth in TRUTHS]
    print_table("Verdicts, and an alarm with a bake of 300 s", rows)
    rate = max(setting.rates)
    updates = [
        update_row(truth, rate, setting.runs, is_gated=is_gated)
        for truth in TRUTHS
        for is_gated in (True, False)
    ]
    print_table(f"Updates of {rate} requests/s: a canary of 300 s, a trial of 300 s", updates)
    write_result("rollout_verdict", name, SEED, {"rows": rows, "updates": updates})


def row(truth: Truth, rate: int, runs: int) -> dict[str, Any]:
    """The results of `runs` rollouts."""
    ends = [play(truth, rate, np.random.default_rng((SEED, rate, run))) for run in range(runs)]
    wrong = VersionOutcome.NO_WORSE if truth.is_worse else VersionOutcome.WORSE
    right = VersionOutcome.WORSE if truth.is_worse else VersionOutcome.NO_WORSE
    times = sorted(at for outcome, at, _ in ends if outcome is right)
    alarms = sorted(at for _, _, at in ends if at is not None)
    return {
        "truth": truth.name,
        "requests/s": rate,
        "wrong": sum(outcome is wrong for outcome, _, _ in ends) / runs,
        "right": len(times) / runs,
        "seconds, median": times[len(times) // 2] if times else None,
        "seconds, most": times[-1] if times else None,
        "alarm goes off": len(alarms) / runs,
        "alarm's seconds": alarms[len(alarms) // 2] if alarms else BAKE_S,
    }


def play(
    truth: Truth, rate: int, random: np.random.Generator
) -> tuple[VersionOutcome, int, int | None]:
    """The verdict, its second, and the second at which the alarm goes off."""
    old = new = VersionEvidence()
    verdict, decided_s, alarm = VersionOutcome.UNDECIDED, LATEST_S, MinuteAlarm()
    for second, (of_old, of_new) in enumerate(seconds(truth, rate, random), 1):
        if verdict is VersionOutcome.UNDECIDED:
            old, new = old.plus(of_old), new.plus(of_new)
            verdict, decided_s = compare_versions(old, new, Allowance()).outcome, second
        alarm.see(second, of_old, of_new)
        if verdict is not VersionOutcome.UNDECIDED and (alarm.at_s or second >= BAKE_S):
            break
    return verdict, decided_s, alarm.at_s


@dataclass(slots=True, kw_only=True)
class Ended:
    """An update's end: seconds since its first step, and requests that the new version served."""

    is_back: bool = False
    full_s: int | None = None  # all traffic on the new version
    over_s: int = 2 * STEP_S
    served: int = 0
    failed: int = 0


def update_row(truth: Truth, rate: int, runs: int, *, is_gated: bool) -> dict[str, Any]:
    """The ends of `runs` updates."""
    ends = [
        simulate_update(truth, rate, np.random.default_rng((SEED, rate, run)), is_gated=is_gated)
        for run in range(runs)
    ]
    full = sorted(it.full_s for it in ends if it.full_s is not None)

    def median(values: Sequence[int]) -> int | None:
        return sorted(values)[len(values) // 2] if values else None

    return {
        "truth": truth.name,
        "by": "verdict" if is_gated else "alarm",
        "taken back": sum(it.is_back for it in ends) / runs,
        "all traffic after s": median(full),
        "over after s": median([it.over_s for it in ends]),
        "over, most": max(it.over_s for it in ends),
        "new version served": median([it.served for it in ends]),
        "of these failed": median([it.failed for it in ends]),
    }


def simulate_update(
    truth: Truth, rate: int, random: np.random.Generator, *, is_gated: bool
) -> Ended:
    """One update, from its first step to its end."""
    ended, guard = Ended(), UpdateVerdict() if is_gated else UpdateAlarm()
    for second in range(-COMING_S, 0):
        guard.see(second, load(second, rate, truth.old_errors, 1.0, random), NOTHING)
    for step, share in enumerate((NEW_SHARE, 1.0)):
        began_s = ended.full_s or 0
        guard.step(began_s, is_trial=share == 1.0)
        for second in range(began_s, began_s + STEP_S):
            of_old = load(second, rate * (1 - share), truth.old_errors, 1.0, random)
            of_new = load(second, rate * share, truth.new_errors, truth.slower, random)
            ended.served += of_new.finished
            ended.failed += of_new.errors_5xx
            ended.over_s = second + 1
            outcome = guard.see(second, of_old, of_new)
            if outcome is VersionOutcome.WORSE:
                ended.is_back = True
                return ended
            if outcome is VersionOutcome.NO_WORSE and second + 1 - began_s >= LEAST_STEP_S:
                break
        if not step:
            ended.full_s = ended.over_s
    return ended


class UpdateVerdict:
    """The verdict on an update, by the seconds that are known so far."""

    def __init__(self) -> None:
        self._update = WatchedUpdate(
            scope=KEY.scope,
            endpoint_name="e",
            generation=1,
            variants=("v",),
            old_config="old",
            new_config="new",
            began_at=-COMING_S,
            since=None,
            is_trial=False,
            num_steps=2,
            allowance=Allowance(),
        )
        self._evidence = FleetEvidence()
        self._unknown: deque[tuple[int, dict[str, ConfigLoad]]] = deque()

    def step(self, began_s: int, *, is_trial: bool) -> None:
        """Begin a step."""
        self._update = replace(self._update, since=float(began_s), is_trial=is_trial)
        self._evidence = FleetEvidence(old_of_update=self._evidence.old_of_update)

    def see(self, second: int, of_old: SecondLoad, of_new: SecondLoad) -> VersionOutcome:
        """The outcome at the end of a second."""
        self._unknown.append((second, {"old": config_load(of_old), "new": config_load(of_new)}))
        if len(self._unknown) > KNOWN_AFTER_S:
            at, loads = self._unknown.popleft()
            self._evidence = add_old_second(self._evidence, self._update, loads)
            self._evidence = add_step_second(self._evidence, self._update, at, loads)
        if second < 0:
            return VersionOutcome.UNDECIDED
        return step_verdict(self._update, {"v": self._evidence}).outcome


class UpdateAlarm:
    """The alarm on an update, which does not shorten any step."""

    def __init__(self) -> None:
        self._alarm, self._began_s = MinuteAlarm(), 0

    def step(self, began_s: int, *, is_trial: bool) -> None:
        """Begin a step. On trial, the old version's last minute is kept."""
        self._began_s = began_s

    def see(self, second: int, of_old: SecondLoad, of_new: SecondLoad) -> VersionOutcome:
        """The outcome at the end of a second."""
        self._alarm.see(second + 1 - self._began_s, of_old, of_new)
        goes_off = self._alarm.at_s is not None
        return VersionOutcome.WORSE if goes_off else VersionOutcome.UNDECIDED


def config_load(load: SecondLoad) -> ConfigLoad:
    """The load of a second as the load of one configuration."""
    return ConfigLoad(
        finished=load.finished,
        errors_5xx=load.errors_5xx,
        model_latency_us=load.model_latency_us,
    )


class MinuteAlarm:
    """A CloudWatch alarm on the new version, one datapoint of a minute, until the bake ends."""

    def __init__(self) -> None:
        self.at_s: int | None = None
        self._old = self._new = VersionEvidence()
        self._old_p95 = 0.0

    def see(self, second: int, of_old: SecondLoad, of_new: SecondLoad) -> None:
        """Record a second's requests of both versions."""
        if second > BAKE_S or self.at_s is not None:
            return
        self._old, self._new = self._old.plus(of_old), self._new.plus(of_new)
        if second % MINUTE_S:
            return
        new, self._old_p95 = self._new, p95(self._old.latency_us) or self._old_p95
        fails = new.errors > ALARM_ERRORS * max(new.finished, 1)
        slow = p95(new.latency_us) > ALARM_LATENCY * self._old_p95
        self.at_s = second if fails or slow else None
        self._old = self._new = VersionEvidence()


def p95(seen: Distribution) -> float:
    """The 95th percentile."""
    if not seen.values:
        return 0.0
    total = np.cumsum(seen.counts)
    return float(seen.values[int(np.searchsorted(total, 0.95 * total[-1]))])


def seconds(
    truth: Truth, rate: int, random: np.random.Generator
) -> Iterator[tuple[SecondLoad, SecondLoad]]:
    """The requests of each second, old and new."""
    for second in range(LATEST_S):
        yield (
            load(second, rate * (1 - NEW_SHARE), truth.old_errors, 1.0, random),
            load(second, rate * NEW_SHARE, truth.new_errors, truth.slower, random),
        )


def load(
    second: int, rate: float, errors: float, slower: float, random: np.random.Generator
) -> SecondLoad:
    """Requests of one version in one second."""
    count = int(random.poisson(rate))
    logs = random.normal(MEAN_US + math.log(slower), SPREAD, count)
    # The gateway's buckets are logarithmic too.
    buckets, counts = np.unique(np.floor(logs / math.log(2) * KEPT), return_counts=True)
    values = np.exp2((buckets + 0.5) / KEPT)
    return SecondLoad(
        key=KEY,
        second=second,
        finished=count,
        errors_5xx=int(random.binomial(count, errors)),
        model_latency_us=Distribution(
            values=tuple(map(float, values)), counts=tuple(map(int, counts))
        ),
    )


if __name__ == "__main__":
    main()
