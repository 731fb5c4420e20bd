"""Whole replays: against queueing theory, conserved, repeatable, and scaled as policies say."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.domain.at_zero import AtZero
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.sim.arrivals import steady
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.outcome import ReplayOutcome, replay_trace
from hostelry.sim.policy_file import build_policy_set
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.replay import ReplaySetup
from hostelry.sim.scenario import build_scenario, build_stepped_trace
from hostelry.sim.service import ServiceModel, default_service
from hostelry.sim.trace import BEGINS_AT, Trace, build_block

SECOND = ServiceModel(prefill_s_per_token=0.0, token_s=0.1, max_concurrency=8)  # 10 tokens: 1 s
TRACKING = {
    "PolicyName": "tracking",
    "TargetTrackingScalingPolicyConfiguration": {
        "PredefinedMetricSpecification": {
            "PredefinedMetricType": (
                "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
            )
        },
        "TargetValue": 5,
        "ScaleInCooldown": 180,
        "ScaleOutCooldown": 180,
    },
}


def fixed(num: int) -> PolicySet:
    return PolicySet(name="fixed", minimum=num, maximum=num)


def trace_of(*at_s: float, tokens: int = 10, lasts_s: float = 60.0, **columns: Any) -> Trace:
    num = len(at_s)
    block = build_block(
        np.array(at_s), np.zeros(num, dtype=np.int64), np.full(num, tokens, np.int64), **columns
    )
    return Trace(name="test", blocks=[block], lasts_s=lasts_s)


def run(
    trace: Trace, policies: PolicySet, service: ServiceModel = SECOND, seed: int = 1, **of: Any
) -> ReplayOutcome:
    of.setdefault("start_spread", 0.0)
    deployment = SimulatedDeployment(**of)
    return replay_trace(
        trace, ReplaySetup(policies=policies, service=service, deployment=deployment, seed=seed)
    )


def erlang_c_wait_s(rate: float, service_s: float, num: int) -> float:
    """Mean wait of M/M/c. Source: Erlang, Solution of some problems (1917)."""
    load = rate * service_s
    last = load**num / math.factorial(num) * num / (num - load)
    waits = last / (sum(load**it / math.factorial(it) for it in range(num)) + last)
    return waits * service_s / (num - load)


@pytest.mark.parametrize(("num", "used"), [(1, 0.6), (3, 0.8), (8, 0.85)])
def test_waiting_is_as_erlang_found(num: int, used: float) -> None:
    source, service_s = np.random.default_rng(7), 1.0
    rate = used * num / service_s
    at_s = steady(source, rate, 30_000 / rate)
    tokens = np.maximum(1, np.rint(source.exponential(1000.0, len(at_s)))).astype(np.int64)
    block = build_block(at_s, np.zeros(len(at_s), dtype=np.int64), tokens)
    service = ServiceModel(prefill_s_per_token=0.0, token_s=0.001, max_concurrency=num)
    outcome = run(Trace(name="m/m/c", blocks=[block]), fixed(1), service)
    wait_s = outcome.latency_s["mean"] - float(tokens.mean()) * 0.001
    assert wait_s == pytest.approx(erlang_c_wait_s(rate, service_s, num), rel=0.15)


def test_a_replay_is_the_same_in_every_process_whatever_its_hash_seed() -> None:
    program = (
        "from hostelry.sim.outcome import replay_trace\n"
        "from hostelry.sim.policy_file import read_policy\n"
        "from hostelry.sim.replay import ReplaySetup\n"
        "from hostelry.sim.scenario import build_scenario\n"
        "from hostelry.sim.service import default_service\n"
        "from pathlib import Path\n"
        "policies = read_policy(Path('examples/policies/responsive.json'))\n"
        "setup = ReplaySetup(policies=policies, service=default_service(), seed=3)\n"
        "print(replay_trace(build_scenario('step-4x', 3), setup).digest)\n"
    )
    root = Path(__file__).resolve().parents[3]
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 32


def test_the_work_of_requests_is_spread_as_measured() -> None:
    spread = ((0.0, 0.5), (0.5, 1.0), (0.9, 2.0), (1.0, 6.0))
    service = replace(SECOND, spread=spread)
    trace = trace_of(*(10.0 * it for it in range(500)), tokens=1, lasts_s=5000.0)
    found = run(trace, fixed(1), service)
    alone = SECOND.work_s(0, 1)
    assert found.latency_s["p50"] == pytest.approx(alone, rel=0.1)
    assert found.latency_s["p90"] == pytest.approx(2 * alone, rel=0.2)
    assert alone * 3 < found.latency_s["p99"] < alone * 6.0
    assert service.mean_factor == pytest.approx(0.375 + 0.6 + 0.4)


def test_another_seed_gives_another_outcome() -> None:
    at_s = [it * 0.3 for it in range(50)]
    digests = {
        run(
            trace_of(*at_s),
            fixed(3),
            replace(SECOND, max_concurrency=1),
            seed=seed,
            routing=RoutingStrategy.RANDOM,
        ).digest
        for seed in (1, 2)
    }
    assert len(digests) == 2


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.0, 200.0), min_size=1, max_size=60),
    st.integers(0, 2),
    st.sampled_from(AtZero),
    st.integers(0, 3),
    st.floats(0.0, 5.0),
    st.sampled_from(["tracking", "fixed", "knative", "rayserve", "responsive"]),
)
def test_every_request_is_answered_or_accounted_for(
    at_s: list[float], minimum: int, at_zero: AtZero, held: int, hold_s: float, kind: str
) -> None:
    bounds = {"MinCapacity": minimum, "MaxCapacity": minimum + 3}
    rules = {"knative": "Knative", "rayserve": "RayServe", "responsive": "Responsive"}
    items: dict[str, Any] = {"tracking": {**bounds, **TRACKING}, "fixed": bounds}
    item = items.get(kind) or {**bounds, rules[kind]: {"target": 1.0}}
    models = np.arange(len(at_s)) % 2
    trace = trace_of(*sorted(at_s), model=models, lasts_s=400.0)
    trace.models = ["a", "b"]
    outcome = run(
        trace, build_policy_set(item, kind), at_zero=at_zero, max_held=held, hold_s=hold_s,
        initial_copies=minimum, max_instances=2,
    )  # fmt: skip
    assert outcome.num_requests == len(at_s)
    assert outcome.num_answered + outcome.num_failed == len(at_s)
    assert outcome.num_delayed <= outcome.num_cold <= len(at_s)
    assert outcome.copy_s >= outcome.overshoot_copy_s >= 0.0
    assert all(it.from_copies != it.to_copies <= minimum + 3 for it in outcome.acts)


def test_a_request_without_a_copy_is_held_and_wakes_one() -> None:
    policies = build_policy_set({"MinCapacity": 0, "MaxCapacity": 2, **TRACKING}, "zero")
    outcome = run(trace_of(10.0), policies, initial_copies=0)
    service = default_service()
    started_s = SECOND.instance_start_s + SECOND.cold_start_s
    assert service.cold_start_s == SECOND.cold_start_s
    assert outcome.latency_s["p50"] == pytest.approx(started_s + 1.0)
    assert (outcome.num_cold, outcome.num_delayed, outcome.num_failed) == (1, 1, 0)
    act = outcome.acts[0]
    assert (act.by, act.from_copies, act.to_copies, act.decided_s) == ("wake", 0, 1, 10.0)
    assert act.answered_s == pytest.approx(10.0 + started_s + 1.0)
    assert not act.is_spurious


@cases(
    "of, num_refused, num_timed_out, num_overflown",
    case("refused as on AWS", {"at_zero": AtZero.COMPAT}, 3, 0, 0),
    case("waited for as long as they may", {"hold_s": 2.0}, 0, 3, 0),
    case("no more may wait", {"max_held": 1}, 0, 0, 2),
)
def test_requests_that_find_no_copy_fail_by_their_kind(
    of: dict[str, Any], num_refused: int, num_timed_out: int, num_overflown: int
) -> None:
    policies = build_policy_set({"MinCapacity": 0, "MaxCapacity": 2, **TRACKING}, "zero")
    outcome = run(trace_of(10.0, 10.1, 10.2), policies, initial_copies=0, **of)
    found = (outcome.num_refused, outcome.num_timed_out, outcome.num_overflown)
    assert found == (num_refused, num_timed_out, num_overflown)
    assert outcome.num_failed == sum(found)


def test_aws_s_own_example_scales_from_zero_after_the_alarm_and_fails_until_then() -> None:
    # Source: "Scale an endpoint to zero instances" in the SageMaker developer guide.
    policies = build_policy_set(
        [
            {"MinCapacity": 0, "MaxCapacity": 1},
            {
                "PolicyName": "wake",
                "StepScalingPolicyConfiguration": {
                    "AdjustmentType": "ChangeInCapacity",
                    "Cooldown": 60,
                    "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
                },
            },
            {
                "AlarmName": "no-capacity",
                "AlarmActions": ["wake"],
                "MetricName": "NoCapacityInvocationFailures",
                "Namespace": "AWS/SageMaker",
                "Statistic": "Maximum",
                "Period": 30,
                "EvaluationPeriods": 1,
                "Threshold": 1,
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            },
        ],
        "compat",
    )
    outcome = run(
        trace_of(*np.arange(5.0, 100.0, 5.0), lasts_s=120.0),
        policies,
        initial_copies=0,
        at_zero=AtZero.COMPAT,
    )
    (act,) = outcome.acts
    assert (act.by, act.decided_s, act.to_copies) == ("wake", 32.0, 1)
    serves_s = 32.0 + SECOND.instance_start_s + SECOND.cold_start_s
    assert outcome.num_refused == len([it for it in np.arange(5.0, 100.0, 5.0) if it < serves_s])


def step_trace(seed: int = 1) -> Trace:
    return build_stepped_trace(np.random.default_rng(seed), 4.0, 4.0, at_s=300.0, lasts_s=600.0)


FLAT = ServiceModel(prefill_s_per_token=0.0, token_s=0.01, max_concurrency=64)  # 2 s of chat


def test_high_resolution_tracking_sees_a_step_within_45_seconds() -> None:
    policies = build_policy_set({"MinCapacity": 3, "MaxCapacity": 40, **TRACKING}, "tracking")
    outcome = run(step_trace(), policies, FLAT, initial_copies=3)
    out = next(it for it in outcome.acts if it.is_out and it.decided_s > 300.0)
    assert out.rose_s == 300.0
    assert 20.0 <= out.decided_s - 300.0 <= 45.0
    assert out.answered_s is not None
    assert out.answered_s > out.decided_s
    assert not out.is_spurious


def test_the_responsive_policy_sees_it_within_seconds() -> None:
    item = {"MinCapacity": 3, "MaxCapacity": 40, "Responsive": {"target": 5}}
    outcome = run(step_trace(), build_policy_set(item, "ours"), FLAT, initial_copies=3)
    out = next(it for it in outcome.acts if it.decided_s > 300.0)
    assert out.by == "responsive"
    assert out.decided_s - 300.0 <= 6.0


def test_what_the_load_does_not_need_is_overshoot_and_an_act_for_it_spurious() -> None:
    schedule = {
        "ScheduledActionName": "too-many",
        "Schedule": "at(2026-01-05T00:05:00)",
        "ScalableTargetAction": {"MinCapacity": 4, "MaxCapacity": 4},
    }
    policies = build_policy_set([{"MinCapacity": 1, "MaxCapacity": 1}, schedule], "scheduled")
    outcome = run(trace_of(*range(0, 600, 10), lasts_s=600.0), policies)
    (act,) = outcome.acts
    assert (act.by, act.decided_s, act.to_copies) == ("too-many", 300.0, 4)
    assert act.is_spurious
    assert outcome.num_spurious == 1
    assert outcome.copy_s == pytest.approx(600.0 + 3 * 300.0)
    assert outcome.overshoot_copy_s == pytest.approx(3 * 300.0)
    assert BEGINS_AT % 86_400 == 0


def test_a_variant_s_number_is_of_instances() -> None:
    metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    configuration = {
        **TRACKING["TargetTrackingScalingPolicyConfiguration"],  # type: ignore[dict-item]
        "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
    }
    item = {
        "MinCapacity": 3,
        "MaxCapacity": 40,
        "TargetTrackingScalingPolicyConfiguration": configuration,
    }
    outcome = run(step_trace(), build_policy_set(item, "variant"), FLAT, initial_copies=3)
    assert outcome.peak_instances == outcome.peak_copies > 3


def test_instances_follow_copies_and_go_when_idle() -> None:
    policies = build_policy_set({"MinCapacity": 1, "MaxCapacity": 40, **TRACKING}, "tracking")
    trace = build_stepped_trace(
        np.random.default_rng(1), 1.0, 20.0, at_s=60.0, back_at_s=200.0, lasts_s=3600.0
    )
    outcome = run(trace, policies, FLAT, idle_release_s=60.0)
    packed = replace(policies, minimum=outcome.peak_copies)
    kept = run(
        build_stepped_trace(
            np.random.default_rng(1), 1.0, 20.0, at_s=60.0, back_at_s=200.0, lasts_s=3600.0
        ),
        packed,
        FLAT,
        initial_copies=outcome.peak_copies,
    )
    assert outcome.peak_instances == math.ceil(outcome.peak_copies / 4)  # 2 of 8 CPUs each
    assert outcome.num_in >= 1
    assert outcome.instance_h < 0.6 * kept.instance_h


def test_sessions_stay_on_their_copy() -> None:
    sessions = np.zeros(20, dtype=np.int64)
    trace = trace_of(*[0.01 * it for it in range(20)], session=sessions)
    alone = run(trace, fixed(4), replace(SECOND, max_concurrency=1))
    assert alone.latency_s["p99"] > 15.0
    spread = run(
        trace_of(*[0.01 * it for it in range(20)]), fixed(4), replace(SECOND, max_concurrency=1)
    )
    assert spread.latency_s["p99"] < 6.0


def test_requests_that_can_never_be_answered_end_the_replay_with_an_error() -> None:
    endless = ServiceModel(prefill_s_per_token=0.0, token_s=3600.0)
    with pytest.raises(TerminalError, match="1 requests have not ended"):
        run(trace_of(1.0, tokens=100), fixed(1), endless)


@pytest.mark.parametrize(
    "name", ["step-4x", "code-bursty", "adapter-market", "idle-then-one", "flash-20x"]
)
def test_scenarios_replay_to_their_end(name: str) -> None:
    policies = build_policy_set({"MinCapacity": 0, "MaxCapacity": 40, **TRACKING}, "tracking")
    trace = build_scenario(name)
    (block,) = trace.blocks
    outcome = run(trace, policies, default_service(), initial_copies=0, max_held=100_000)
    assert outcome.num_requests == len(block)
    assert outcome.num_refused == outcome.num_overflown == 0


@cases(
    "members, message",
    case("no instance", {"max_instances": 0}, "max_instances is 0"),
    case("more than the most", {"min_instances": 101}, "min_instances is 101"),
    case("no number", {"hold_s": float("nan")}, "hold_s is nan"),
    case("time that stands still", {"pace": 0.0}, "pace is 0.0"),
)
def test_a_deployment_that_cannot_be_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimulatedDeployment(**members)
