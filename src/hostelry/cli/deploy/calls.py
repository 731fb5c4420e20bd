"""Looks at a deployment on the platform, carries out its steps, and reports them."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_state
from hostelry.cli.declared.application import (
    Application,
    AppliedEnd,
    AppliedStep,
    describe,
)
from hostelry.cli.declared.aws import Aws, AwsError
from hostelry.cli.declared.observation import described_config
from hostelry.cli.declared.resource import ApplyStep, ResourceKey, ResourceKind
from hostelry.cli.deploy.plan import ModelDeployment
from hostelry.cli.deploy.steps import step_text
from hostelry.cli.logs import kept_logs
from hostelry.cli.work_reporter import WorkReporter
from hostelry.home.home import Credentials, Home, UpConfig

STATE_EACH_S = 1.0  # between looks, because control writes its whole state for each look
LOG_LINES = 12


def find_instance_type(aws: Aws, endpoint: str) -> str | None:
    """The instance type of an endpoint. None if the endpoint does not exist."""
    shown = describe(aws, ResourceKey(ResourceKind.ENDPOINT, endpoint))
    if shown is None:
        return None
    try:
        config, _ = described_config(aws, shown["EndpointConfigName"])
    except AwsError as error:
        if error.is_absence:
            return None
        raise
    found: str | None = config.get("ProductionVariants", [{}])[0].get("InstanceType")
    return found


def find_objects(s3: Any, deployment: ModelDeployment) -> frozenset[str] | None:
    """Keys of the deployment's objects that exist in full size. None without the bucket."""
    sizes: dict[str, int] = {}
    try:
        for prefix in {"/".join(it.key.split("/")[:2]) + "/" for it in deployment.objects}:
            pages = s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=deployment.bucket, Prefix=prefix):
                sizes |= {it["Key"]: it["Size"] for it in page.get("Contents", ())}
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("NoSuchBucket", "404"):
            raise
        return None
    return frozenset(
        order.key
        for order in deployment.objects
        if order.key in sizes and order.size_bytes in (None, sizes[order.key])
    )


def carry_out(application: Application, name: str, home: Home) -> None:
    """Carry out all steps and wait until all is in service. Raises TerminalError with the cause."""
    try:
        application.converge(lambda _: None)
    except TerminalError:
        failed = [it for it in application.outcomes if it.end is AppliedEnd.FAILED]
        if failed:
            raise failure(failed[0], name, home) from None
        raise


class DeployProgress:
    """Reports the steps of a deployment. Steps of several threads are reported one by one.

    `new_bucket` is the bucket that an upload creates, or "".
    """

    def __init__(
        self,
        reporter: WorkReporter,
        name: str,
        running: tuple[UpConfig, Credentials],
        new_bucket: str = "",
    ) -> None:
        self._reporter, self._name, self._running = reporter, name, running
        self._new_bucket, self._last = new_bucket, ""
        self._lock = threading.Lock()
        self._uploading = ExitStack()
        self._advance: Any = None  # counts bytes while an upload runs
        self._waits: dict[ResourceKey, None] = {}
        self._state: Mapping[str, Any] | None = None
        self._state_at_s = -STATE_EACH_S

    def report_start(self, step: ApplyStep) -> None:
        """Report a call, or begin to count an upload's bytes."""
        with self._lock:
            if step.file is None:
                text = step_text(step)
                if text != self._last:  # a scalable target and its policy share one line
                    self._reporter.line(text)
                self._last = text
                return
            if self._new_bucket:
                self._reporter.line(f"create bucket {self._new_bucket}")
            counting = self._reporter.count_bytes("upload", step.file.num_bytes)
            self._advance = self._uploading.enter_context(counting)

    def report_wait(self, key: ResourceKey, status: str) -> None:
        """Show the first of the current waits with the progress of copies."""
        with self._lock:
            self._waits.setdefault(key)
            if self._advance is not None or key != next(iter(self._waits)):
                return
            if self._reporter.elapsed_s - self._state_at_s >= STATE_EACH_S:
                self._state = control_state(*self._running)
                self._state_at_s = self._reporter.elapsed_s
            waits_for = f"{key} to be deleted" if status == "Deleting" else str(key)
            self._reporter.waits(waiting_text(waits_for, self._name, self._state))

    def report_sent(self, step: ApplyStep, num_bytes: float) -> None:
        """Count bytes of an upload."""
        self._advance(num_bytes)

    def report_end(self, outcome: AppliedStep) -> None:
        """Report the end of an upload."""
        step = outcome.step
        with self._lock:
            self._waits.pop(step.key, None)
            if step.file is None:
                return
            self._uploading.close()
            self._advance = None
            if outcome.end is AppliedEnd.DONE:
                size = step.file.num_bytes / 1e6
                self._reporter.line(f"uploaded {size:.1f} MB to {step.file.path}")


def failure(outcome: AppliedStep, name: str, home: Home) -> TerminalError:
    """The error for a failed step: its cause, the last lines of the log, and the remedy."""
    step = outcome.step
    is_refused = not outcome.reason.startswith(f"{step.key} is ")
    if step.until is None or is_refused:
        return TerminalError(outcome.reason)
    cause = outcome.reason.partition(": ")[2]
    kind = "adapter" if " adapter " in step_text(step) else step.key.kind.value
    lines = [f"{kind} {step.key.name} failed: {cause}"]
    for title, messages in list(kept_logs(home, name, LOG_LINES).items())[-1:]:
        lines += [f"the last lines of {title}:", *(f"  {it}" for it in messages)]
    lines.append(
        "Once the cause is mended, the same command continues; "
        f"`hostelry rm {name}` removes what is left"
    )
    return TerminalError("\n".join(lines))


def waiting_text(waits_for: str, name: str, state: Mapping[str, Any] | None) -> str:
    """The text for a wait, with the progress of copies. Without an answer of control, no `state`.

    The text has the phase of the first copy that is not ready, and the reason if it is known.
    """
    if state is None:
        return f"{waits_for}: control does not answer"
    found = [it for it in state.get("endpoints", ()) if it["name"] == name]
    copies: Sequence[Mapping[str, Any]] = found[0]["copies"] if found else ()
    starting = [it for it in copies if it["phase"] not in ("ready", "stopping")]
    notes = [it.get("placement_note") for it in found[0].get("components", ())] if found else []
    if starting:
        reason = f", {starting[0]['reason']}" if starting[0].get("reason") else ""
        return f"{waits_for}: copy {starting[0]['phase']}{reason}"
    note = next((it for it in notes if it), None)
    return f"{waits_for}: {note}" if note else waits_for
