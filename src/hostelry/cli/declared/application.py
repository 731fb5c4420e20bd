"""Carries out the steps of `hostelry apply`, and waits for endpoints and components."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.cli.declared.aws import Aws, AwsError
from hostelry.cli.declared.document import SAGEMAKER
from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.forms import is_version_of
from hostelry.cli.declared.local_artifacts import (
    ArtifactUploads,
    build_uploads,
    local_paths,
    replace_marks,
)
from hostelry.cli.declared.observation import (
    ACTIONS,
    ObservedState,
    each,
    observed_state,
    policy_reference,
)
from hostelry.cli.declared.plan import plan
from hostelry.cli.declared.resource import (
    ApplyStep,
    DocumentError,
    DocumentFault,
    Observed,
    ResourceKey,
    ResourceKind,
    StepAct,
    StepPlan,
    Until,
    UploadedFile,
    split_target,
)

Pause = Callable[[float], None]
"""Returns after so many seconds; raises where the wait is to end."""
Waiting = Callable[[ResourceKey, str], None]
"""Called with each status that is seen."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
FINAL = ("InService", "Failed")
MAX_STEPS_AT_ONCE = 8
MAX_ROUNDS = 5
PAUSE_S = 0.5


def describe(aws: Aws, key: ResourceKey) -> dict[str, Any] | None:
    """The description of an endpoint or a component. None if it does not exist."""
    if key.kind is ResourceKind.ENDPOINT:
        call = "DescribeEndpoint", {"EndpointName": key.name}
    else:
        call = "DescribeInferenceComponent", {"InferenceComponentName": key.name}
    try:
        return aws.call(SAGEMAKER, *call)
    except AwsError as error:
        if error.is_absence:
            return None
        raise


def get_status(found: dict[str, Any]) -> str:
    """EndpointStatus or InferenceComponentStatus."""
    status: str = found.get("EndpointStatus") or found["InferenceComponentStatus"]
    return status


def wait_until(
    aws: Aws, key: ResourceKey, until: Until, pause: Pause, waiting: Waiting, *, strict: bool = True
) -> None:
    """Wait until the resource is in a final status, or is gone.

    Raises TerminalError if the resource fails. If `strict`, also raises TerminalError if its last
    update was rolled back, with the reason.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        found = describe(aws, key)
        if found is None:
            if until is Until.GONE:
                return
            raise TerminalError(f"{key} was deleted meanwhile")
        status = get_status(found)
        waiting(key, status)
        if status in FINAL and not (until is Until.GONE and status == "InService"):
            break
        pause(pause_s)
        pause_s = min(pause_s * 1.3, LONGEST_PAUSE_S)
    reason = found.get("FailureReason", "")
    if status == "Failed" or until is Until.GONE or (strict and reason):
        raise TerminalError(f"{key} is {status}: {reason or 'no reason is given'}")


class AppliedEnd(Enum):
    """How a step can end."""

    DONE = "done"
    FAILED = "failed"
    CONFLICT = "conflict"  # resources changed meanwhile: plan again
    SKIPPED = "skipped"  # a step that this step needs has failed


class AppliedStep(msgspec.Struct, frozen=True, kw_only=True):
    """How a step ended, its duration, and the reason if it is not done."""

    step: ApplyStep
    end: AppliedEnd
    reason: str = ""
    seconds: float = 0.0


class StepListener(Protocol):
    """Is notified of events, from several threads."""

    def report_start(self, step: ApplyStep) -> None:
        """A step begins."""

    def report_wait(self, key: ResourceKey, status: str) -> None:
        """A resource that a step waits for has this status."""

    def report_sent(self, step: ApplyStep, num_bytes: float) -> None:
        """Another `num_bytes` of a step's files were sent."""

    def report_end(self, outcome: AppliedStep) -> None:
        """A step has ended."""


@dataclass(kw_only=True)
class Execution:
    """One run of a plan's steps. With `waits` False only steps that others need are waited for."""

    aws: Aws
    plan: StepPlan
    policy_arns: dict[str, str]
    pause: Pause
    listener: StepListener
    waits: bool = True
    num_workers: int = MAX_STEPS_AT_ONCE
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> list[AppliedStep]:
        """Carry out the steps. Returns every outcome, in the order of the ends.

        If a step raises an error that is not a HostelryError, waits for the steps under way and
        raises this error.
        """
        left = {it.number: it for it in self.plan.steps}
        ends: dict[int, AppliedEnd] = {}
        outcomes: list[AppliedStep] = []
        running: dict[Future[AppliedStep], ApplyStep] = {}

        def note(outcome: AppliedStep) -> None:
            ends[outcome.step.number] = outcome.end
            outcomes.append(outcome)
            self.listener.report_end(outcome)

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
                self._stopped.set()  # Ctrl-C: steps under way end, and no other step begins
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
        self.listener.report_start(step)
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
            self.aws.upload(step.file, lambda count: self.listener.report_sent(step, count))
            return
        try:
            result = self.aws.call(step.service, step.operation, self._params(step))
        except AwsError as error:
            if step.act is StepAct.DELETE and error.is_absence:
                return
            raise
        if step.key.kind is ResourceKind.POLICY and "PolicyARN" in result:
            resource_id, _ = split_target(step.key.within)
            self.policy_arns[policy_reference(resource_id, step.key.name)] = result["PolicyARN"]
        is_needed = any(step.number in it.needs for it in self.plan.steps)
        if step.until is not None and (self.waits or is_needed):
            is_update = step.act is StepAct.UPDATE
            wait_until(
                self.aws,
                step.key,
                step.until,
                self._pause,
                self.listener.report_wait,
                strict=is_update,
            )

    def _params(self, step: ApplyStep) -> Mapping[str, Any]:
        """The step's params. ARNs replace references to policies."""
        if step.key.kind is not ResourceKind.ALARM:
            return step.params
        return {
            name: [self.policy_arns.get(one, one) for one in it] if name in ACTIONS else it
            for name, it in step.params.items()
        }


@dataclass(kw_only=True)
class Application:
    """A set of documents, and the platform that it is applied to."""

    aws: Aws
    wanted: WantedState
    uploads: ArtifactUploads
    prune: bool
    pause: Pause
    listener: StepListener
    waits: bool = True
    num_workers: int = 8
    outcomes: list[AppliedStep] = field(default_factory=list)

    def plan(self, observed: ObservedState) -> StepPlan:
        """Plan the steps from the observed resources."""
        return plan(
            self.wanted, observed, self.uploads, present_uris(self.aws, self.uploads),
            prune=self.prune,
        )  # fmt: skip

    def observe(self) -> ObservedState:
        """Observe the documents' resources, or all resources with `prune`."""
        return observed_state(
            self.aws, selected_by(self.wanted, everything=self.prune), self.wanted.role_arn
        )

    def settle(self) -> ObservedState:
        """The present resources, after the changes under way have ended."""
        while True:
            observed = self.observe()
            busy = [it for it in observed.resources.values() if it.is_busy and self._concerns(it)]
            if not busy:
                return observed
            each(self._settled, busy)

    def _settled(self, found: Observed) -> bool:
        """Wait until a resource's current change has ended. True if the change succeeded."""
        until = Until.GONE if found.status == "Deleting" else Until.IN_SERVICE
        try:
            wait_until(
                self.aws, found.key, until, self.pause, self.listener.report_wait, strict=False
            )
        except TerminalError:
            return False
        return True

    def _concerns(self, found: Observed) -> bool:
        return found.key in self.wanted.resources or found.owner == self.wanted.owner

    def converge(self, confirm: Callable[[StepPlan], None]) -> StepPlan:
        """Carry out all steps and return the first plan. `confirm` may raise an error to stop.

        Raises TerminalError if steps fail, or if the same difference remains after all rounds.
        """
        first: StepPlan | None = None
        for number in range(MAX_ROUNDS):
            observed = self.settle()
            steps = self.plan(observed)
            if first is None:
                first = steps
                confirm(steps)
            if not steps.steps:
                return first
            if number:
                self.pause(PAUSE_S)
            outcomes = self._carried_out(steps, observed)
            self.outcomes += outcomes
            failed = [it for it in outcomes if it.end is AppliedEnd.FAILED]
            if failed:
                raise TerminalError(failure_text(outcomes))
            conflicts = [it for it in outcomes if it.end is AppliedEnd.CONFLICT]
            if not self.waits and not conflicts:
                return first
            if conflicts and number == MAX_ROUNDS - 1:
                raise TerminalError(failure_text(outcomes))
        left = ", ".join(dict.fromkeys(str(it.key) for it in steps.steps))
        raise TerminalError(
            f"after {MAX_ROUNDS} rounds this is still different from the documents: {left};"
            " something else changes it, or it reads back as another value. `hostelry apply --diff`"
            " shows the fields"
        )

    def _carried_out(self, steps: StepPlan, observed: ObservedState) -> Sequence[AppliedStep]:
        return Execution(
            aws=self.aws,
            plan=steps,
            policy_arns=dict(observed.policy_arns),
            pause=self.pause,
            listener=self.listener,
            waits=self.waits,
            num_workers=self.num_workers,
        ).run()


def failure_text(outcomes: Sequence[AppliedStep]) -> str:
    """The failed steps with reasons, and the number of steps that were not tried."""
    bad = [it for it in outcomes if it.end in (AppliedEnd.FAILED, AppliedEnd.CONFLICT)]
    skipped = [it for it in outcomes if it.end is AppliedEnd.SKIPPED]
    lines = [f"{it.step.act.value} {it.step.key}: {it.reason}" for it in bad]
    if skipped:
        lines.append(f"{len(skipped)} steps that need this were not tried")
    lines.append("mend the cause and apply again: it begins with what is there")
    return "\n".join(lines)


def selected_by(wanted: WantedState, *, everything: bool) -> Callable[[ResourceKey], bool]:
    """Select the resources of the documents and their versions, or all resources."""
    if everything:
        return lambda _: True
    stems: Mapping[ResourceKind, set[str]] = {
        ResourceKind.MODEL: {it.name for it in wanted.resources if it.kind is ResourceKind.MODEL},
        ResourceKind.CONFIG: {
            one.name for one in wanted.resources if one.kind is ResourceKind.ENDPOINT
        }.union(wanted.config_names.values()),
    }

    def selected(key: ResourceKey) -> bool:
        if key.kind in stems:
            return any(is_version_of(key.name, it) for it in stems[key.kind])
        return key in wanted.resources

    return selected


def add_uploads(wanted: WantedState, bucket: str) -> tuple[WantedState, ArtifactUploads]:
    """The documents with the URIs of their local artifacts, and the objects of these artifacts.

    Raises DocumentError for files that are missing or cannot be read.
    """
    files: dict[str, Sequence[UploadedFile]] = {}
    uris: dict[str, str] = {}
    faults: list[DocumentFault] = []
    for one in wanted.resources.values():
        for local in local_paths(one.params):
            if local.mark in uris:
                continue
            try:
                uri, found = build_uploads(local, bucket)
            except TerminalError as error:
                faults.append(DocumentFault(one.place, str(one.key), str(error)))
                continue
            uris[local.mark], files[uri] = uri, found
    if faults:
        raise DocumentError(faults)
    resources = {
        key: replace(one, params=replace_marks(one.params, uris))
        for key, one in wanted.resources.items()
    }
    return replace(wanted, resources=resources), ArtifactUploads(files)


def present_uris(aws: Aws, uploads: ArtifactUploads) -> frozenset[str]:
    """The URIs whose objects exist."""

    def present(file: UploadedFile) -> str | None:
        bucket, _, key = file.uri.removeprefix("s3://").partition("/")
        try:
            aws.call("s3", "HeadObject", {"Bucket": bucket, "Key": key})
        except AwsError as error:
            if error.is_absence:
                return None
            raise
        return file.uri

    return frozenset(each(present, uploads.all))
