"""Several policies of one target, suspension and the crash guard.

Sources: UG = "Target tracking scaling policies" (Multiple target tracking scaling policies) in the
Application Auto Scaling user guide, SUS = "Suspend and resume scaling" there, SEED = "Amazon
SageMaker inference launches faster auto scaling for generative AI models" (2024-07-26).
"""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import Suspended
from hostelry.scaling.decide.combine import (
    CombinedDecision,
    GuardLimits,
    TargetHealth,
    Vote,
    Voter,
    apply_suspension,
    apply_veto,
    combine,
    find_veto,
)
from hostelry.scaling.decide.decision import Capacity, Decision, build_not_scaled

NOW_8 = Capacity(desired=8, serving=8, minimum=0, maximum=20)


def vote(by: str, voter: Voter, desired: int, *, may_scale_in: bool = True) -> Vote:
    decision = Decision(desired=desired, reason=f"{by} wants {desired}.")
    return Vote(by=by, voter=voter, decision=decision, may_scale_in=may_scale_in)


def tracking(by: str, desired: int, *, may_scale_in: bool = True) -> Vote:
    return vote(by, Voter.TRACKING, desired, may_scale_in=may_scale_in)


def step(by: str, desired: int) -> Vote:
    return vote(by, Voter.STEP, desired)


def proposal(desired: int) -> Vote:
    return vote("responsive", Voter.PROPOSAL, desired)


@cases(
    "votes, desired, by",
    case("no votes", [], 8, ""),
    case("one votes out", [tracking("a", 12)], 12, "a"),
    case("two say out: the largest (UG)", [tracking("a", 9), tracking("b", 12)], 12, "b"),
    case("one out, one in: out, if any is ready for it (UG)", [tracking("a", 4), tracking("b", 9)],
        9, "b"),
    case("in only if all are ready (UG): concurrency falls, invocations do not (SEED)",
        [tracking("a", 4), tracking("b", 8)], 8, ""),
    case("both say in: the largest (UG)", [tracking("a", 4), tracking("b", 6)], 6, "b"),
    case("one with DisableScaleIn holds nobody up (UG)",
        [tracking("a", 4), tracking("b", 8, may_scale_in=False)], 4, "a"),
    case("one with DisableScaleIn never scales in itself", [tracking("a", 4, may_scale_in=False)],
        8, ""),
    case("a step-in is not held up by target tracking (7.5)", [step("s", 5), tracking("a", 8)], 5,
        "s"),
    case("step and tracking both in: the largest (UG)", [step("s", 5), tracking("a", 6)], 6, "a"),
    case("a step-in with tracking that does not agree in itself",
        [step("s", 3), tracking("a", 6), tracking("b", 8)], 3, "s"),
    case("two steps, in and out: out", [step("s", 5), step("t", 9)], 9, "t"),
    case("a proposal raises", [proposal(10)], 10, "responsive"),
    case("a proposal never lowers", [proposal(3)], 8, ""),
    case("max wins over a proposal", [proposal(10), tracking("a", 12)], 12, "a"),
    case("max wins: proposal", [proposal(12), tracking("a", 10)], 12, "responsive"),
    case("a proposal keeps up", [proposal(6), tracking("a", 4)], 6, "a"),
    case("a proposal keeps all of it", [proposal(8), tracking("a", 4)], 8, ""),
    case("a proposal for less is no vote", [proposal(2), tracking("a", 4)], 4, "a"),
    case("a proposal for less does not make target tracking agree",
        [proposal(3), tracking("a", 4), tracking("b", 8)], 8, ""),
)  # fmt: skip
def test_one_decision_of_many(votes: list[Vote], desired: int, by: str) -> None:
    outcome = combine(votes, NOW_8)
    assert (outcome.decision.desired, outcome.by) == (desired, by)


def test_the_reason_names_who_was_not_ready() -> None:
    outcome = combine([tracking("concurrency", 4), tracking("invocations", 8)], NOW_8)
    assert outcome.decision.reason == (
        "concurrency wants 4. Not scaled in: invocations is not ready for it."
    )


def test_refusals_of_all_are_kept() -> None:
    refusal = build_not_scaled("AlreadyAtMaxCapacity", NOW_8)
    decision = Decision(desired=8, reason="No.", not_scaled=(refusal,))
    votes = [Vote(by="a", voter=Voter.TRACKING, decision=decision), tracking("b", 8)]
    assert combine(votes, NOW_8).decision.not_scaled == (refusal,)


VOTES = st.lists(
    st.builds(
        lambda by, voter, desired, may: vote(by, voter, desired, may_scale_in=may),
        st.sampled_from("abc"), st.sampled_from(Voter), st.integers(0, 20), st.booleans(),
    ),
    max_size=6,
)  # fmt: skip


@given(VOTES)
def test_what_is_decided_was_asked_for_or_is_there_already(votes: list[Vote]) -> None:
    desired = combine(votes, NOW_8).decision.desired
    assert desired in {NOW_8.desired, *(it.decision.desired for it in votes)}
    asked = max((it.decision.desired for it in votes), default=0)
    if asked > NOW_8.desired:
        assert desired == asked


@given(VOTES, st.randoms(use_true_random=False))
def test_the_order_of_votes_changes_no_number(votes: list[Vote], random: Random) -> None:
    shuffled = list(votes)
    random.shuffle(shuffled)
    assert combine(votes, NOW_8).decision.desired == combine(shuffled, NOW_8).decision.desired


@given(VOTES, st.sampled_from("abc"), st.sampled_from(Voter))
def test_one_more_vote_for_the_present_number_lowers_to_the_steps_at_most(
    votes: list[Vote], by: str, voter: Voter
) -> None:
    before = combine(votes, NOW_8).decision.desired
    # A tracking policy that does not agree leaves the decision to the steps for less.
    steps = [it.decision.desired for it in votes if it.voter is Voter.STEP]
    by_steps = max((it for it in steps if it < 8), default=8)
    after = combine([*votes, vote(by, voter, 8)], NOW_8).decision.desired
    assert after >= min(before, by_steps)


@cases(
    "suspended, wanted, desired, member",
    case("out (SUS)", Suspended(scale_out=True), 9, 8, "DynamicScalingOutSuspended"),
    case("out suspended, in goes on (SUS)", Suspended(scale_out=True), 7, 7, None),
    case("in (SUS)", Suspended(scale_in=True), 7, 8, "DynamicScalingInSuspended"),
    case("in suspended, out goes on (SUS)", Suspended(scale_in=True), 9, 9, None),
    case("scheduled is another thing (SUS)", Suspended(scheduled=True), 7, 7, None),
    case("nothing to do", Suspended(scale_in=True, scale_out=True), 8, 8, None),
)
def test_suspended_scaling(
    suspended: Suspended, wanted: int, desired: int, member: str | None
) -> None:
    outcome = combine([step("s", wanted)], NOW_8)
    after = apply_suspension(outcome, NOW_8, suspended)
    assert after.decision.desired == desired
    assert (member or "") in after.decision.reason


HEALTHY = TargetHealth(num_requests=1000)


@cases(
    "health, text",
    case("nothing speaks against it", HEALTHY, None),
    case("an idle target may be taken to zero", TargetHealth(), None),
    case("a copy died: concurrency falls with it (SEED)", replace(HEALTHY, num_crashed=1),
        "1 copies died in the last 60 s"),
    case("errors are answered quickly, so that concurrency falls (SEED)",
        replace(HEALTHY, num_errors=51), "51 of 1000 requests failed"),
    case("as many as may fail", replace(HEALTHY, num_errors=50), None),
    case("one failure is no sign", TargetHealth(num_requests=1, num_errors=1), None),
    case("two of two are", TargetHealth(num_requests=2, num_errors=2), "2 of 2"),
    case("errors of requests that never ended", TargetHealth(num_errors=3), "(100%"),
    case("a queue", replace(HEALTHY, oldest_waiting_s=1.5), "waits 1.5 s"),
    case("a queue within the limit", replace(HEALTHY, oldest_waiting_s=1.0), None),
    case("the mean of two fleets is low", replace(HEALTHY, had_two_fleets=True),
        "two fleets served in the last 150 s"),
    case("an age that is no number is no reason to scale in",
        replace(HEALTHY, oldest_waiting_s=math.nan), "waits nan s"),
)  # fmt: skip
def test_the_guard(health: TargetHealth, text: str | None) -> None:
    reason = find_veto(health)
    assert reason is None if text is None else reason is not None and text in reason


@cases(
    "wanted, desired",
    case("a scale-in is vetoed", 4, 8),
    case("a scale-out is not", 12, 12),
    case("nor what changes nothing", 8, 8),
)
def test_a_veto_holds_back_scale_in_only(wanted: int, desired: int) -> None:
    outcome = combine([tracking("a", wanted)], NOW_8)
    after = apply_veto(outcome, NOW_8, "2 copies died")
    assert after.decision.desired == desired
    assert ("Not scaled in: 2 copies died." in after.decision.reason) == (wanted < 8)
    assert apply_veto(outcome, NOW_8, None) == outcome


@cases(
    "wrong",
    case("a rate above 1", {"max_error_rate": 1.5}),
    case("a rate that is no number", {"max_error_rate": math.nan}),
    case("no errors are enough", {"min_errors": 0}),
    case("fewer crashes than none", {"max_crashed": -1}),
    case("less than no wait", {"max_waiting_s": -1.0}),
)
def test_limits_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"max_error_rate is|has a limit below"):
        replace(GuardLimits(), **wrong)


@given(
    st.builds(
        TargetHealth,
        num_requests=st.integers(0, 100),
        num_errors=st.integers(0, 100),
        num_crashed=st.integers(0, 3),
        oldest_waiting_s=st.floats(0, 10),
    ),
    st.integers(0, 20),
)
def test_the_guard_never_lowers_what_was_decided(health: TargetHealth, wanted: int) -> None:
    outcome = CombinedDecision(decision=Decision(desired=wanted, reason="x."), by="a")
    after = apply_veto(outcome, NOW_8, find_veto(health)).decision.desired
    assert after >= wanted
    assert after in (wanted, 8)
