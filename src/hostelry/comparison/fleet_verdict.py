"""Verdict on the new fleet of an endpoint's update, in the update's present step.

the present step                            the new fleet's requests are compared with
------------------------------------------  ----------------------------------------------------
the new fleet comes up                      none: undecided
both fleets serve                           the old fleet's of the same step
the new fleet has all traffic, on trial     the old fleet's since the update began

Each step is decided for itself: at a larger share of the traffic a version may be slower than at a
smaller one. Only variants that both deployments have are compared, by their names. The endpoint's
verdict is WORSE if one variant is worse, and NO_WORSE if no variant can be. `alpha` is shared out
over the steps and the variants.
"""

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from hostelry.base.printable import short_number
from hostelry.comparison.confidence import Bounds
from hostelry.comparison.verdict import (
    MEASURES,
    NO_REQUESTS,
    Finding,
    VersionEvidence,
    VersionOutcome,
    VersionVerdict,
    compare_versions,
)
from hostelry.domain.load import LoadByConfig
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import Allowance

WARM_UP_S = 5  # of a step, in which new copies fill their caches: latencies do not count
US_PER_MS = 1000.0


class WatchedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update under way whose fleets are compared. Instants are in seconds since the epoch.

    The configurations name the fleets in `SecondLoad.by_config`. The present one of `num_steps`
    steps began at `since`, None while the new fleet comes up. `is_trial`: the new fleet has all
    traffic.
    """

    scope: Scope
    endpoint_name: str
    generation: int
    variants: tuple[str, ...]
    old_config: str
    new_config: str
    began_at: float
    since: float | None
    is_trial: bool
    num_steps: int
    allowance: Allowance


class FleetEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a variant's fleets: the old one's of the whole update, both's of the step."""

    old_of_update: VersionEvidence = NO_REQUESTS
    old: VersionEvidence = NO_REQUESTS
    new: VersionEvidence = NO_REQUESTS


class StepVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the step since `since` of the update to the deployment `generation`.

    `failure` says why it is rolled back. None unless it is worse.
    """

    generation: int
    since: float | None
    outcome: VersionOutcome
    text: str
    failure: str | None = None


def add_old_second(
    evidence: FleetEvidence, update: WatchedUpdate, loads: LoadByConfig
) -> FleetEvidence:
    """The evidence with a second of the update more, whatever its step."""
    load = loads.get(update.old_config)
    if load is None:
        return evidence
    return replace(evidence, old_of_update=evidence.old_of_update.plus(load))


def add_step_second(
    evidence: FleetEvidence, update: WatchedUpdate, second: int, loads: LoadByConfig
) -> FleetEvidence:
    """The evidence with one more second of the present step. Unchanged by a second before it."""
    since = update.since
    if since is None or second < math.ceil(since):
        return evidence
    old, new = loads.get(update.old_config), loads.get(update.new_config)
    if old is not None:
        evidence = replace(evidence, old=evidence.old.plus(old))
    if new is not None:
        is_warm = second >= math.ceil(since) + WARM_UP_S
        evidence = replace(evidence, new=evidence.new.plus(new, times=is_warm))
    return evidence


def step_verdict(update: WatchedUpdate, evidence: Mapping[str, FleetEvidence]) -> StepVerdict:
    """The verdict on the new fleet in the present step, by the evidence on each variant."""
    parts = max(1, update.num_steps) * max(1, len(update.variants))
    allowance = replace(update.allowance, alpha=update.allowance.alpha / parts)
    found = {
        name: (pair, compare_versions(*pair, allowance))
        for name in update.variants
        for pair in [_sides(update, evidence.get(name, FleetEvidence()))]
    }
    outcomes = {verdict.outcome for _, verdict in found.values()}
    outcome = VersionOutcome.UNDECIDED
    if VersionOutcome.WORSE in outcomes:
        outcome = VersionOutcome.WORSE
    elif outcomes == {VersionOutcome.NO_WORSE}:
        outcome = VersionOutcome.NO_WORSE
    requests = sum(pair[1].finished for pair, _ in found.values())
    verdict = StepVerdict(
        generation=update.generation,
        since=update.since,
        outcome=outcome,
        text=f"{outcome.value} after {requests} requests",
    )
    for name, (pair, of_variant) in found.items():
        if of_variant.outcome is outcome:
            return _explain(verdict, update.allowance, name, pair, of_variant)
    return verdict


def _sides(
    update: WatchedUpdate, evidence: FleetEvidence
) -> tuple[VersionEvidence, VersionEvidence]:
    return evidence.old_of_update if update.is_trial else evidence.old, evidence.new


def _explain(
    verdict: StepVerdict,
    allowance: Allowance,
    name: str,
    pair: tuple[VersionEvidence, VersionEvidence],
    of_variant: VersionVerdict,
) -> StepVerdict:
    """The verdict with the measure of the variant that it follows from."""
    old, new = pair
    if not old.finished:
        return replace(verdict, text=f"{verdict.text}, none of the old fleet was counted")
    finding = next(it for it in of_variant.findings if it.outcome is verdict.outcome)
    seen = f"{_value(finding, finding.new_seen)} against {_value(finding, finding.old_seen)}"
    verdict = replace(verdict, text=f"{verdict.text}, {finding.measure} {seen}")
    if verdict.outcome is not VersionOutcome.WORSE:
        return verdict
    failure = (
        f"The new fleet of variant {name} is worse than the old one: {finding.measure}"
        f" {_say_range(finding, finding.new_seen, finding.new)} of {new.finished} requests, against"
        f" {_say_range(finding, finding.old_seen, finding.old)} of {old.finished};"
        f" {_say_limit(finding, allowance)} is allowed, with alpha {allowance.alpha:g}. The update"
        " was rolled back."
    )
    return replace(verdict, failure=failure)


def _say_range(finding: Finding, seen: float, bounds: Bounds) -> str:
    low, high = _value(finding, bounds.low), _value(finding, bounds.high)
    return f"{_value(finding, seen)} (from {low} to {high})"


def _value(finding: Finding, value: float) -> str:
    if finding.measure != MEASURES[0]:
        return f"{short_number(value / US_PER_MS)} ms"
    return f"{100 * value:.2f}".rstrip("0").rstrip(".") + " %"


def _say_limit(finding: Finding, allowance: Allowance) -> str:
    if finding.measure == MEASURES[0]:
        return f"{100 * allowance.errors:g} % of the requests more"
    return f"{100 * allowance.latency:g} % longer"
