"""Updates of an endpoint to good versions and to a broken one, with kills in each step."""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry_lab.context import DrillContext
from hostelry_lab.observer import wait_for
from hostelry_lab.outcome import DrillOutcome
from hostelry_lab.rollout.deployment import BROKEN, GOOD, LATER, RolloutDeployment
from hostelry_lab.rollout.rollout_ledger import (
    RolloutFacts,
    RolloutLedger,
    RolloutPart,
    RolloutStep,
    count_part,
)
from hostelry_lab.rollout.rollout_traffic import RolloutTraffic
from hostelry_lab.rollout.step_kills import StepKills

NAME = "rollout"
TARGET = "only requests on a killed gateway worker's sockets fail; a broken version goes back"
AFTERWARDS_S = 5.0
OVER_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """An update of the drill: the version, its instances, and the steps of its traffic.

    Without `traffic` it is in batches of one instance.
    """

    name: str
    version: str
    instances: int
    traffic: Mapping[str, Any] | None


# A canary of a one-instance fleet gets the whole percentage. With two instances, it gets half.
LINEAR = RolloutPlan(
    name="a linear update to a good version",
    version=GOOD,
    instances=2,
    traffic={"Type": "LINEAR", "LinearStepSize": {"Type": "INSTANCE_COUNT", "Value": 1}},
)
CANARY = RolloutPlan(
    name="a canary of a broken version",
    version=BROKEN,
    instances=1,
    traffic={"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10}},
)
ROLLING = RolloutPlan(
    name="a rolling update to a good version", version=LATER, instances=2, traffic=None
)


def rollout(context: DrillContext) -> DrillOutcome:
    """Update under load while processes are killed, and count the outcome of each request."""
    parts = []
    with RolloutDeployment(context.platform).deploy(LINEAR.instances) as deployment:
        traffic = RolloutTraffic(deployment, context.num_threads)
        with traffic.flowing():
            for plan in (LINEAR, CANARY, ROLLING):
                deployment.configure(plan.version, plan.instances)
                parts.append(run_part(context, deployment, traffic, plan))
    ledger = RolloutLedger(parts=tuple(parts))
    return DrillOutcome(
        drill=NAME, target=TARGET, missed=tuple(ledger.broken_promises()), rollout=ledger
    )


def run_part(
    context: DrillContext,
    deployment: RolloutDeployment,
    traffic: RolloutTraffic,
    plan: RolloutPlan,
) -> RolloutPart:
    """One update from its request until requests have flowed for a while after its end."""
    context.progress(f"{NAME}: {plan.name}")
    clock = SystemClock()
    since, since_at = monotonic_s(), clock.now()
    deployment.update(plan.version, plan.traffic)
    kills = StepKills(context.platform, deployment, context.progress).through(since)
    update = wait_for(lambda: _ended_update(deployment, plan), OVER_S)
    if update is None:
        raise TerminalError(f"{plan.name} did not end within {OVER_S:g} s of its last step")
    Event().wait(AFTERWARDS_S)
    return count_part(
        RolloutFacts(
            name=plan.name,
            new_version=plan.version,
            is_good=plan.version != BROKEN,
            num_threads=context.num_threads,
            calls=traffic.calls(since),
            kills=kills,
            steps=steps_of(update, since_at),
            outcome=update["outcome"],
            cause=update["cause"],
            ended_s=update["ended_at"] - since_at,
        )
    )


def _ended_update(deployment: RolloutDeployment, plan: RolloutPlan) -> dict[str, Any] | None:
    """Control's record of the update, once it is over."""
    shown = deployment.find_endpoint()
    wanted = deployment.config(plan.version)
    found = [] if shown is None else [it for it in shown["updates"] if it["to_config"] == wanted]
    return found[-1] if found and found[-1]["ended_at"] is not None else None


def steps_of(update: Mapping[str, Any], since_at: float) -> list[RolloutStep]:
    """The steps that control has recorded, in seconds after the instant `since_at`."""
    return [
        RolloutStep(
            name=step["name"],
            began_s=step["began_at"] - since_at,
            ended_s=step["ended_at"] - since_at,
            share=step["most_share"],
        )
        for step in update["steps"]
    ]
