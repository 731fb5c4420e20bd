"""The replayed half of `scale_out`: how soon policies act on a step, and how often without one.

Each replay is whole: requests are routed to copies that take their time, metrics are published by
periods, and alarms are evaluated at their times. The step comes at any moment of a minute.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.outcome import ReplayOutcome, replay_trace
from hostelry.sim.peers import KnativeRule, RayServeRule
from hostelry.sim.policy_file import build_policy_set
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.replay import ReplaySetup
from hostelry.sim.scenario import build_stepped_trace
from hostelry.sim.service import ServiceModel
from hostelry.sim.trace import Trace

USED = 0.7  # of the target concurrency, before the step
SETTLED_S = 600.0
AFTER_S = 330.0
HOUR_S = 3600.0
BACK_S = 300.0
# A copy whose batch costs nothing, at 4.68 s a request, since only detection is compared.
SERVICE = ServiceModel(
    prefill_s_per_token=0.0004,
    token_s=0.0198,
    max_concurrency=64,
    origin="4.68 s a request of chat, whatever the batch",
)
SERVICE_S = 4.68
PREDEFINED = "SageMakerInferenceComponent"
OURS = "responsive"
CLASSIC = "AWS, 1-minute metric"
HIGH_RESOLUTION = "AWS, high resolution"
KNATIVE = "Knative"
RAY_SERVE = "Ray Serve"
POLICIES = (CLASSIC, HIGH_RESOLUTION, KNATIVE, RAY_SERVE, OURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A load: `rate` requests a second, then `factor` times that. `copies` carry the first."""

    name: str
    rate: float
    factor: float
    cv: float
    copies: int

    @property
    def target(self) -> float:
        """The target concurrency of a copy, at which the first rate uses `USED` of the copies."""
        return self.rate * SERVICE_S / USED / self.copies


CASES = (
    Case(name="4x, 2/s", rate=2.0, factor=4.0, cv=1.0, copies=3),
    Case(name="4x, 8/s", rate=8.0, factor=4.0, cv=1.0, copies=12),
    Case(name="4x, 8/s, cv 3", rate=8.0, factor=4.0, cv=3.0, copies=12),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many steps are replayed of each case, and how many hours without one."""

    steps: int
    hours: int
    cases: int = len(CASES)


def policy_named(name: str, case: Case) -> PolicySet:
    """A policy at the case's target."""
    minimum, maximum = case.copies, case.copies * 12
    bounds = {"MinCapacity": minimum, "MaxCapacity": maximum}
    if name in (CLASSIC, HIGH_RESOLUTION):
        is_classic = name == CLASSIC
        kind = "InvocationsPerCopy" if is_classic else "ConcurrentRequestsPerCopyHighResolution"
        a_minute = case.rate * 60.0 / USED / case.copies
        configuration = {
            "PredefinedMetricSpecification": {"PredefinedMetricType": PREDEFINED + kind},
            "TargetValue": a_minute if is_classic else case.target,
            "ScaleInCooldown": 180,
            "ScaleOutCooldown": 180,
        }
        request = {"PolicyName": "p", "TargetTrackingScalingPolicyConfiguration": configuration}
        return build_policy_set({**bounds, **request}, name)
    found = PolicySet(name=name, minimum=minimum, maximum=maximum)
    if name == KNATIVE:
        return replace(found, rule=KnativeRule(target=case.target))
    if name == RAY_SERVE:
        return replace(found, rule=RayServeRule(target=case.target))
    options = ResponsiveOptions(target=case.target, scale_in_after_s=BACK_S)
    return replace(found, responsive=options)


def measure_replay(size: Size, seed: int) -> dict[str, Any]:
    """A row for each case and policy, and the outcomes' digests."""
    rows: list[dict[str, Any]] = []
    digests: dict[str, str] = {}
    for case in CASES[: size.cases]:
        for name in POLICIES:
            delays = [delay_s(case, name, seed + number) for number in range(size.steps)]
            steady = [steady_hour(case, name, seed + 1000 + it) for it in range(size.hours)]
            rows.append(row(case, name, delays, steady))
            digests[f"{case.name}; {name}"] = steady[0].digest
    return {"replayed": rows, "digests": digests}


def delay_s(case: Case, name: str, seed: int) -> float | None:
    """Seconds from a step to the first act of scaling out, or None without an act in time."""
    at_s = SETTLED_S + random.Random(seed).random() * 60.0
    source = np.random.default_rng(seed)
    trace = build_stepped_trace(
        source, case.rate, case.factor, at_s=at_s, lasts_s=at_s + AFTER_S, cv=case.cv
    )
    outcome = run(trace, case, name, seed)
    acts = [it.decided_s for it in outcome.acts if it.is_out and it.decided_s > at_s]
    return acts[0] - at_s if acts else None


def steady_hour(case: Case, name: str, seed: int) -> ReplayOutcome:
    """An hour of the first rate, after some minutes that do not count."""
    source = np.random.default_rng(seed)
    trace = build_stepped_trace(source, case.rate, 1.0, lasts_s=SETTLED_S + HOUR_S, cv=case.cv)
    return run(trace, case, name, seed)


def run(trace: Trace, case: Case, name: str, seed: int) -> ReplayOutcome:
    """The outcome of one replay."""
    deployment = SimulatedDeployment(initial_copies=case.copies)
    policies = policy_named(name, case)
    setup = ReplaySetup(policies=policies, deployment=deployment, service=SERVICE, seed=seed)
    return replay_trace(trace, setup)


def row(
    case: Case, name: str, delays: Sequence[float | None], steady: Sequence[ReplayOutcome]
) -> dict[str, Any]:
    """Detection and false alarms of one policy."""
    seen = [it for it in delays if it is not None]
    spurious = [sum(act.is_out and act.decided_s > SETTLED_S for act in it.acts) for it in steady]
    return {
        "load": case.name,
        "policy": name,
        "t0->t1 p50 s": quantile(seen, 0.5),
        "p95 s": quantile(seen, 0.95),
        "max s": max(seen, default=float("nan")),
        "unseen": len(delays) - len(seen),
        "spurious/h": sum(spurious) / len(spurious),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile, or NaN without values."""
    return float(np.quantile(values, share)) if values else float("nan")


def figures(rows: Sequence[Mapping[str, Any]], load: str, policy: str) -> Mapping[str, Any]:
    """The row of a load and a policy."""
    return next(it for it in rows if it["load"] == load and it["policy"] == policy)
