from dataclasses import replace

import pytest

from hostelry_lab.drill_text import outcome_lines
from hostelry_lab.outcome import DrillOutcome
from hostelry_lab.rollout.rollout_ledger import (
    RolloutKill,
    RolloutLedger,
    RolloutPart,
    RolloutStep,
)
from hostelry_lab.rollout.text import picture_lines

PART = RolloutPart(
    name="a canary",
    is_good=False,
    requests=30,
    answers={"first": 20, "good": 6},
    failures={"answered 500 by the broken version": 4},
    outcome="rolled back",
    cause="an alarm\nits log",
    took_s=6.0,
    rollback_s=2.5,
    failed_afterwards=0,
    max_socket_failures=4,
    steps=[
        RolloutStep(name="coming up", began_s=0.0, ended_s=3.0, share=0.0),
        RolloutStep(name="step 1 of 2", began_s=3.0, ended_s=6.0, share=0.1),
    ],
    kills=[
        RolloutKill(kind="control", name="control", at_s=3.1, step="step 1 of 2", back_s=1.25),
        RolloutKill(kind="gateway", name="gateway-1", at_s=3.9, step="step 1 of 2", back_s=None),
    ],
    shares=[0.0, None, 0.0, 0.1, 0.5, 1.0, 0.0],
    failed=[0, 0, 0, 3, 12, 0, 0],
)


def test_an_update_is_printed_with_its_requests_its_steps_and_its_picture() -> None:
    lines = outcome_lines(
        DrillOutcome(drill="rollout", target="t", rollout=RolloutLedger(parts=[PART]))
    )
    text = "\n".join(lines)
    for wanted in (
        "a canary: rolled back after 6.0 s",
        "requests  30; answered by: 20 first, 6 good",
        "failed    4 answered 500 by the broken version; 0 after its end",
        "rollback  2.5 s after the version's first request",
        "cause     an alarm",
        "control 1.2, gateway never",
        "new version  · ▁▄█ ",
        "failed      ···3+··",
        "killed         cg  ",
        "step        ...111 ",
        "            0 s",
    ):
        assert wanted in text, wanted
    assert "its log" not in text


@pytest.mark.parametrize("seconds", [0, 1, 100, 101, 1000])
def test_the_picture_is_never_too_wide(seconds: int) -> None:
    part = replace(PART, shares=[0.5] * seconds, failed=[1] * seconds)
    rows = picture_lines(part)
    assert bool(rows) is (seconds > 0)
    assert all(len(it) <= 112 for it in rows)
