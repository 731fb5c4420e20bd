import asyncio
import os

import pytest

from hostelry.server.pulse import PULSE_VARIABLE, Pulse, answer_pulse

PATIENT_S, IMPATIENT_S = 10.0, 0.01


def answering(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Task[None]":
    """A service in this very process, with a descriptor of its own as one that inherited it."""
    monkeypatch.setenv(PULSE_VARIABLE, str(os.dup(pulse.inherited_fd)))
    pulse.handed_over()
    return asyncio.create_task(answer_pulse())


def test_a_loop_that_turns_answers_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> list[bool]:
        with Pulse() as pulse:
            service = answering(pulse, monkeypatch)
            answers = [await pulse.answered(PATIENT_S) for _ in range(3)]
        await service
        return answers

    assert asyncio.run(work()) == [True] * 3


def test_an_answer_to_an_earlier_question_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> list[bool]:
        with Pulse() as pulse:
            missed = [await pulse.answered(IMPATIENT_S) for _ in range(2)]
            service = answering(pulse, monkeypatch)
            late = await pulse.answered(PATIENT_S)
        await service
        return [*missed, late]

    assert asyncio.run(work()) == [False, False, True]


def test_a_service_that_is_gone_answers_nothing() -> None:
    async def work() -> bool:
        with Pulse() as pulse:
            pulse.handed_over()
            return await pulse.answered(PATIENT_S)

    assert asyncio.run(work()) is False


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(None, id="no supervisor"),
        pytest.param("nonsense", id="nonsense"),
        pytest.param("987654", id="a descriptor that is not there"),
    ],
)
def test_a_service_without_a_supervisor_does_not_mind(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PULSE_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(PULSE_VARIABLE, given)
    asyncio.run(answer_pulse())
    assert PULSE_VARIABLE not in os.environ, "what the service starts does not inherit it"
