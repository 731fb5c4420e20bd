"""Calls of events: kept once, made at least once, repeated and given up."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.event_rule import MAX_AGE_S, MAX_RETRIES, EventCall
from hostelry.domain.scope import Scope
from hostelry.events import call_rows
from hostelry.events.call_rows import CallRows, TooManyCallsError
from hostelry.events.runner import CallDeps, CallRunner
from hostelry.messaging.queue_messages import NewMessage
from hostelry.messaging.tables import MessageTables
from hostelry.schedules.targets import TargetCall
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.sqlite import SqliteFile

CREATE_JOB = "arn:aws:scheduler:::aws-sdk:sagemaker:createTransformJob"
NOW = ManualClock().now()
DOWN = ServiceError("ServiceUnavailable", "later", 503)
IN_USE = ServiceError("ResourceInUse", "it is there", 400)


def call_of(
    id: str = "1", max_age_s: float = MAX_AGE_S, max_retries: int = MAX_RETRIES
) -> EventCall:
    return EventCall(
        id=id,
        scope=Scope("1", "r"),
        source="r",
        target_arn=CREATE_JOB,
        text="{}",
        event_at=NOW,
        max_age_s=max_age_s,
        max_retries=max_retries,
    )


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Control:
    """Answers calls with the given results, then with success."""

    answers: list[BaseException] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    def invoke(self, call: EventCall, _: TargetCall) -> None:
        self.made.append(call.id)
        if self.answers:
            raise self.answers.pop(0)

    def build_letters(self, _: EventCall, error: ServiceError) -> Sequence[NewMessage]:
        self.given_up.append(error.code)
        return ()

    def runner(self, rows: CallRows, clock: ManualClock) -> CallRunner:
        return CallRunner(
            CallDeps(
                rows=rows,
                clock=clock,
                gateway_url="http://g",
                invoke=self.invoke,
                build_letters=self.build_letters,
                announce=lambda _: None,
                count=lambda _, name: self.counted.append(name),
            )
        )


@pytest.fixture
def rows(tmp_path: Path) -> CallRows:
    return CallRows(MessageTables(SqliteFile(tmp_path / "messages.db")))


def test_an_event_that_is_reported_twice_is_one_call(rows: CallRows) -> None:
    control, clock = Control(), ManualClock()
    assert rows.accept("e", [call_of()], NOW)
    control.runner(rows, clock).run_due()
    assert not rows.accept("e", [call_of()], NOW)
    control.runner(rows, clock).run_due()
    assert control.made == ["1"]
    rows.sweep(NOW + call_rows.SEEN_S)
    assert rows.accept("e", [], NOW), "it is forgotten after a day"


def test_a_job_that_was_created_before_a_kill_counts_as_started(
    rows: CallRows, tmp_path: Path
) -> None:
    control, clock = Control([KilledError(), IN_USE]), ManualClock()
    rows.accept("e", [call_of()], NOW)
    with pytest.raises(KilledError):
        control.runner(rows, clock).run_due()
    again = CallRows(MessageTables(SqliteFile(tmp_path / "messages.db")))
    control.runner(again, clock).run_due()
    assert (control.made, control.given_up, again.next_at()) == (["1", "1"], [], None)


class FullAtTimes(CallRows):
    """Rows on a disk that refuses as many outcomes as `refusals`."""

    refusals = 2

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("the disk is full")

    def finish(self, call: EventCall, letters: Sequence[NewMessage] = ()) -> None:
        self._refuse()
        super().finish(call, letters)

    def postpone(self, call: EventCall, attempts: int, next_at: float) -> None:
        self._refuse()
        super().postpone(call, attempts, next_at)


@cases(
    "answers, next_at",
    case("a call that was made", [], None),
    case("a call that failed", [DOWN], NOW + 1.0),
)
def test_a_call_whose_outcome_a_full_disk_refuses_is_not_made_again(
    answers: list[BaseException], next_at: float | None, tmp_path: Path
) -> None:
    rows = FullAtTimes(MessageTables(SqliteFile(tmp_path / "messages.db")))
    control = Control(answers)
    runner = control.runner(rows, ManualClock())
    rows.accept("e", [call_of()], NOW)
    for _ in range(rows.refusals):
        with pytest.raises(StoreUnavailable):
            runner.run_due()
    runner.run_due()
    assert (control.made, rows.next_at()) == (["1"], next_at)


def test_a_name_that_another_job_has_is_a_failure(rows: CallRows) -> None:
    control = Control([IN_USE])
    rows.accept("e", [call_of()], NOW)
    control.runner(rows, ManualClock()).run_due()
    assert control.given_up == ["ResourceInUse"]


def test_a_failure_that_may_pass_is_tried_again_within_the_policy(rows: CallRows) -> None:
    control, clock = Control([DOWN, DOWN, DOWN]), ManualClock()
    runner = control.runner(rows, clock)
    rows.accept("e", [call_of(max_retries=2)], NOW)
    pauses = []
    while (at := rows.next_at()) is not None:
        pauses.append(at - clock.now())
        clock.advance(at - clock.now())
        runner.run_due()
    assert pauses == [0.0, 1.0, 2.0]
    assert control.given_up == ["ServiceUnavailable"]
    assert control.counted.count("FailedInvocations") == 3


def test_a_failure_does_not_hold_up_the_calls_behind_it(rows: CallRows) -> None:
    control = Control([DOWN])
    rows.accept("e", [call_of("1"), call_of("2")], NOW)
    control.runner(rows, ManualClock()).run_due()
    assert control.made == ["1", "2"]


def test_an_event_too_old_is_given_up(rows: CallRows) -> None:
    control, clock = Control([DOWN]), ManualClock(NOW + 100.0)
    rows.accept("e", [call_of(max_age_s=60)], NOW)
    control.runner(rows, clock).run_due()
    assert control.given_up == ["ServiceUnavailable"]


def test_too_many_calls_that_wait_are_refused_and_the_event_may_come_again(
    rows: CallRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_rows, "MAX_WAITING", 1)
    rows.accept("e", [call_of()], NOW)
    with pytest.raises(TooManyCallsError):
        rows.accept("f", [call_of("2")], NOW)
    monkeypatch.undo()
    assert rows.accept("f", [call_of("2")], NOW)
