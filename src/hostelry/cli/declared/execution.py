"""Steps carried out: those that need no other at once, the others after what they need."""

import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.cli.declared.aws import Aws, AwsError
from hostelry.cli.declared.observation import ACTIONS, policy_reference
from hostelry.cli.declared.resource import ResourceKey, ResourceKind, target_of
from hostelry.cli.declared.step import ApplyStep, StepAct, StepPlan
from hostelry.cli.declared.waiting import Pause, wait_until

MAX_STEPS_AT_ONCE = 8


class AppliedEnd(Enum):
    """Ends of a step."""

    DONE = "done"
    FAILED = "failed"
    CONFLICT = "conflict"  # what is there changed meanwhile: plan again
    SKIPPED = "skipped"  # what it needs has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedStep:
    """The end of a step, the reason where it is not done, and the seconds that it took."""

    step: ApplyStep
    end: AppliedEnd
    reason: str = ""
    seconds: float = 0.0


class StepListener(Protocol):
    """Is notified of what happens, from several threads."""

    def started(self, step: ApplyStep) -> None:
        """A step begins."""

    def waiting(self, key: ResourceKey, status: str) -> None:
        """A resource has this status while it is waited for."""

    def sent(self, step: ApplyStep, num_bytes: float) -> None:
        """So many more bytes of a step's files were sent."""

    def ended(self, outcome: AppliedStep) -> None:
        """A step is over."""


@dataclass(kw_only=True)
class Execution:
    """One run of a plan's steps. `waits` False: a step that none needs is not waited for."""

    aws: Aws
    plan: StepPlan
    policy_arns: dict[str, str]
    pause: Pause
    listener: StepListener
    waits: bool = True
    num_workers: int = MAX_STEPS_AT_ONCE
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> list[AppliedStep]:
        """Every step's outcome, in the order of their ends.

        Raises what a step raises that is no HostelryError, once no step is under way.
        """
        left = {it.number: it for it in self.plan.steps}
        ends: dict[int, AppliedEnd] = {}
        outcomes: list[AppliedStep] = []
        running: dict[Future[AppliedStep], ApplyStep] = {}

        def note(outcome: AppliedStep) -> None:
            ends[outcome.step.number] = outcome.end
            outcomes.append(outcome)
            self.listener.ended(outcome)

        with ThreadPoolExecutor(self.num_workers) as threads:
            try:
                while left or running:
                    for step in [it for it in left.values() if all(n in ends for n in it.needs)]:
                        del left[step.number]
                        lacking = [n for n in step.needs if ends[n] is not AppliedEnd.DONE]
                        if lacking:
                            note(self._skipped(step, lacking[0]))
                        else:
                            running[threads.submit(self._outcome, step)] = step
                    ready, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ready:
                        del running[future]
                        note(future.result())
            except BaseException:
                self._stopped.set()  # Ctrl-C: steps under way end, others do not begin
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        return outcomes

    def _pause(self, seconds: float) -> None:
        if self._stopped.is_set():
            raise TerminalError("interrupted")
        self.pause(seconds)

    def _skipped(self, step: ApplyStep, lacking: int) -> AppliedStep:
        needed = next(it for it in self.plan.steps if it.number == lacking)
        reason = f"it needs {needed.key}"
        return AppliedStep(step=step, end=AppliedEnd.SKIPPED, reason=reason)

    def _outcome(self, step: ApplyStep) -> AppliedStep:
        self.listener.started(step)
        began = monotonic_s()
        end, reason = AppliedEnd.DONE, ""
        try:
            self._carry_out(step)
        except AwsError as error:
            end, reason = (
                (AppliedEnd.CONFLICT if error.is_conflict else AppliedEnd.FAILED),
                str(error),
            )
        except HostelryError as error:
            end, reason = AppliedEnd.FAILED, str(error)
        except OSError as error:  # of a local file
            end = AppliedEnd.FAILED
            reason = f"{error.filename} cannot be read: {error.strerror}"
        return AppliedStep(step=step, end=end, reason=reason, seconds=monotonic_s() - began)

    def _carry_out(self, step: ApplyStep) -> None:
        if step.file is not None:
            self.aws.upload(step.file, lambda count: self.listener.sent(step, count))
            return
        try:
            result = self.aws.call(step.service, step.operation, self._params(step))
        except AwsError as error:
            if step.act is StepAct.DELETE and error.is_absence:
                return
            raise
        if step.key.kind is ResourceKind.POLICY and "PolicyARN" in result:
            resource_id, _ = target_of(step.key.within)
            self.policy_arns[policy_reference(resource_id, step.key.name)] = result["PolicyARN"]
        is_needed = any(step.number in it.needs for it in self.plan.steps)
        if step.until is not None and (self.waits or is_needed):
            is_update = step.act is StepAct.UPDATE
            wait_until(
                self.aws, step.key, step.until, self._pause, self.listener.waiting, strict=is_update
            )

    def _params(self, step: ApplyStep) -> Mapping[str, Any]:
        """The step's params with ARNs in place of references to policies."""
        if step.key.kind is not ResourceKind.ALARM:
            return step.params
        return {
            name: [self.policy_arns.get(one, one) for one in it] if name in ACTIONS else it
            for name, it in step.params.items()
        }
