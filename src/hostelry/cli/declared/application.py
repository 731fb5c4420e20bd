"""Rounds of observing, planning and carrying out, until nothing is left to do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.aws import Aws, AwsError
from hostelry.cli.declared.execution import AppliedEnd, AppliedStep, Execution, StepListener
from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.fault import DocumentError, DocumentFault
from hostelry.cli.declared.forms import is_version_of
from hostelry.cli.declared.local_path import local_paths, with_uploaded
from hostelry.cli.declared.observation import ObservedState, each, observed_state
from hostelry.cli.declared.plan import plan
from hostelry.cli.declared.resource import Observed, ResourceKey, ResourceKind
from hostelry.cli.declared.step import StepPlan, Until, UploadedFile
from hostelry.cli.declared.upload import ArtifactUploads, uploads_of
from hostelry.cli.declared.waiting import Pause, wait_until

MAX_ROUNDS = 5
PAUSE_S = 0.5


@dataclass(kw_only=True)
class Application:
    """One set of documents, and the platform that it is applied to."""

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
        """The steps from what was observed."""
        return plan(
            self.wanted, observed, self.uploads, present_uris(self.aws, self.uploads),
            prune=self.prune,
        )  # fmt: skip

    def observe(self) -> ObservedState:
        """The documents' resources that are there; with `prune`, all."""
        return observed_state(
            self.aws, selected_by(self.wanted, everything=self.prune), self.wanted.role_arn
        )

    def settle(self) -> ObservedState:
        """What is there, once no change of it is under way."""
        observed = self.observe()
        busy = [it for it in observed.resources.values() if it.is_busy and self._concerns(it)]
        if not busy:
            return observed

        def wait(found: Observed) -> bool:
            until = Until.GONE if found.status == "Deleting" else Until.IN_SERVICE
            try:
                wait_until(
                    self.aws, found.key, until, self.pause, self.listener.waiting, strict=False
                )
            except TerminalError:
                return False  # what it has become is observed again
            return True

        each(wait, busy)
        return self.observe()

    def _concerns(self, found: Observed) -> bool:
        return found.key in self.wanted.resources or found.owner == self.wanted.owner

    def converge(self, confirm: Callable[[StepPlan], None]) -> StepPlan:
        """Carry out what is to be done; the first plan. `confirm` raises where it may not be done.

        Raises TerminalError where steps fail, or the same is still different after all rounds.
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
    """What failed and why, and how many steps were not tried."""
    bad = [it for it in outcomes if it.end in (AppliedEnd.FAILED, AppliedEnd.CONFLICT)]
    skipped = [it for it in outcomes if it.end is AppliedEnd.SKIPPED]
    lines = [f"{it.step.act.value} {it.step.key}: {it.reason}" for it in bad]
    if skipped:
        lines.append(f"{len(skipped)} steps that need this were not tried")
    lines.append("mend the cause and apply again: it begins with what is there")
    return "\n".join(lines)


def selected_by(wanted: WantedState, *, everything: bool) -> Callable[[ResourceKey], bool]:
    """Whether a resource is described: those of the documents, and versions of them."""
    if everything:
        return lambda _: True
    stems: Mapping[ResourceKind, set[str]] = {
        ResourceKind.MODEL: {it.name for it in wanted.resources if it.kind is ResourceKind.MODEL},
        ResourceKind.CONFIG: {
            one.name for one in wanted.resources if one.kind is ResourceKind.ENDPOINT
        },
    }

    def selected(key: ResourceKey) -> bool:
        if key.kind in stems:
            return any(is_version_of(key.name, it) for it in stems[key.kind])
        return key in wanted.resources

    return selected


def with_uploads(wanted: WantedState, bucket: str) -> tuple[WantedState, ArtifactUploads]:
    """The documents with the URIs of their local artifacts, and the objects of these.

    Raises DocumentError for files that are not there or cannot be read.
    """
    files: dict[str, Sequence[UploadedFile]] = {}
    uris: dict[str, str] = {}
    faults: list[DocumentFault] = []
    for one in wanted.resources.values():
        for local in local_paths(one.params):
            if local.mark in uris:
                continue
            try:
                uri, found = uploads_of(local, bucket)
            except TerminalError as error:
                faults.append(DocumentFault(one.place, str(one.key), str(error)))
                continue
            uris[local.mark], files[uri] = uri, found
    if faults:
        raise DocumentError(faults)
    resources = {
        key: replace(one, params=with_uploaded(one.params, uris))
        for key, one in wanted.resources.items()
    }
    return replace(wanted, resources=resources), ArtifactUploads(files)


def present_uris(aws: Aws, uploads: ArtifactUploads) -> frozenset[str]:
    """The URIs of objects that are there."""

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
