"""The requests of an update under kills: why they failed, which promises that breaks."""

from dataclasses import replace

from tests.cases import case, cases

from hostelry_lab.rollout.drill import steps_of
from hostelry_lab.rollout.rollout_ledger import (
    BROKEN,
    MODEL_ERROR,
    SOCKETS,
    RolloutCall,
    RolloutFacts,
    RolloutKill,
    RolloutLedger,
    RolloutStep,
    count_part,
)
from hostelry_lab.rollout.step_kills import fleets_of

CLOSED = "ConnectionClosedError"
ALARM = 'CloudWatch alarm "errors" went into ALARM state; the update was rolled back.'
KILL = RolloutKill(kind="gateway", name="gateway-1", at_s=5.0, step="step 1 of 2", back_s=0.5)
FACTS = RolloutFacts(
    name="part",
    new_version="new",
    is_good=True,
    num_threads=2,
    calls=[],
    kills=[KILL],
    steps=[RolloutStep(name="coming up", began_s=0.0, ended_s=4.0, share=0.0)],
    outcome="complete",
    cause=None,
    ended_s=20.0,
)
BAD = replace(FACTS, is_good=False, outcome="rolled back", cause=ALARM)


def answered(began_s: float, version: str) -> RolloutCall:
    return RolloutCall(began_s=began_s, ended_s=began_s + 0.1, version=version)


def failed(began_s: float, error: str, took_s: float = 0.1) -> RolloutCall:
    return RolloutCall(began_s=began_s, ended_s=began_s + took_s, error=error)


@cases(
    "facts, call, cause, is_broken",
    case("its worker was killed", FACTS, failed(4.9, CLOSED, 0.2), SOCKETS, False),
    case("its connection was dead", FACTS, failed(5.4, CLOSED), SOCKETS, False),
    case("after a kill", FACTS, failed(5.6, CLOSED), CLOSED, True),
    case("before a kill", FACTS, failed(4.0, CLOSED), CLOSED, True),
    case(
        "while another process was killed",
        replace(FACTS, kills=[replace(KILL, kind="control")]),
        failed(4.9, CLOSED, 0.2),
        CLOSED,
        True,
    ),
    case("by a good model", FACTS, failed(4.9, MODEL_ERROR, 0.2), MODEL_ERROR, True),
    case("by the broken version", BAD, failed(4.9, MODEL_ERROR), BROKEN, False),
    case("other", BAD, failed(9.0, "Throttled"), "Throttled", True),
)
def test_each_failure_has_its_cause(
    facts: RolloutFacts, call: RolloutCall, cause: str, is_broken: bool
) -> None:
    part = count_part(replace(facts, calls=[call]))
    assert part.failures == {cause: 1}
    assert bool(part.broken_promises()) is is_broken


@cases(
    "facts, words",
    case("a good version that serves", FACTS, []),
    case("a broken one that went back", BAD, []),
    case(
        "a good one that went back",
        replace(FACTS, outcome="rolled back", cause="a copy died"),
        ["rolled back, not complete: a copy died"],
    ),
    case(
        "a broken one that stayed",
        replace(BAD, outcome="complete", cause=None),
        ["complete, not rolled back: no cause"],
    ),
    case(
        "a broken one that went back for another reason",
        replace(BAD, cause="a copy died"),
        ["rolled back by no alarm: a copy died"],
    ),
    case(
        "more failures than requests can have been under way",
        replace(FACTS, calls=[failed(4.95, CLOSED)] * 3),
        ["and only 2 can have been"],
    ),
    case(
        "failures after the rollback",
        replace(BAD, calls=[failed(21.5, MODEL_ERROR)]),
        ["1 requests failed after its end"],
    ),
    case(
        "a process that stays away",
        replace(FACTS, kills=[replace(KILL, back_s=None)]),
        ["gateway-1 did not come back"],
    ),
)
def test_promises(facts: RolloutFacts, words: list[str]) -> None:
    broken = RolloutLedger(parts=[count_part(facts)]).broken_promises()
    assert len(broken) == len(words)
    assert all(part in line for part, line in zip(words, broken, strict=True))


def test_the_part_has_the_answers_by_version_and_the_share_of_each_second() -> None:
    calls = [
        answered(-0.1, "old"),
        answered(0.1, "old"),
        answered(2.2, "old"),
        answered(2.4, "new"),
        failed(2.6, CLOSED),
    ]
    part = count_part(replace(FACTS, calls=calls))
    assert (part.requests, part.answers) == (5, {"new": 1, "old": 3})
    assert (part.shares, part.failed) == ([0.0, None, 0.5], [0, 0, 1])
    assert part.rollback_s is None
    assert part.max_socket_failures == 2


def test_a_broken_version_got_the_requests_that_it_failed() -> None:
    calls = [answered(1.1, "old"), failed(1.5, MODEL_ERROR), failed(7.0, MODEL_ERROR)]
    part = count_part(replace(BAD, calls=calls))
    assert part.shares[1] == 0.5
    assert part.rollback_s == 18.5


def test_controls_record_of_steps_and_fleets() -> None:
    recorded = {"name": "step 1 of 2", "began_at": 105.0, "ended_at": 110.0, "most_share": 0.5}
    assert steps_of({"steps": [recorded]}, 100.0) == [
        RolloutStep(name="step 1 of 2", began_s=5.0, ended_s=10.0, share=0.5)
    ]
    copies = [
        {"generation": 1, "instance": "i-1"},
        {"generation": 2, "instance": "i-2"},
        {"generation": 2, "instance": "i-3"},
    ]
    assert fleets_of({"copies": copies}) == {1: ["i-1"], 2: ["i-2", "i-3"]}
