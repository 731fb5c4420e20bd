"""Carries a deployment out: step by step, each decided by what is there."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.upload import shown_upload
from hostelry.cli.deploy.calls import DeployCalls
from hostelry.cli.deploy.deployment import ModelDeployment
from hostelry.cli.deploy.steps import Action, DeployStep, missing_objects, next_step
from hostelry.cli.kept_logs import kept_logs
from hostelry.cli.state import control_state
from hostelry.cli.work_reporter import WorkReporter
from hostelry.home.home import Credentials, Home, UpConfig

PAUSE_S, LONGEST_PAUSE_S = 0.2, 1.0
STATE_EACH_S = 1.0  # control writes all of its state for each look
LOG_LINES = 12
# Of calls that another run made at the same moment.
TAKEN = "Cannot create already existing"


def carry_out(
    calls: DeployCalls,
    deployment: ModelDeployment,
    reporter: WorkReporter,
    home: Home,
    running: tuple[UpConfig, Credentials],
) -> None:
    """Take every step until all is in service. Raises TerminalError with the cause of a failure."""
    tried: list[DeployStep] = []
    present = None
    state: Mapping[str, Any] | None = None
    state_at_s = -STATE_EACH_S
    while True:
        present = calls.present(deployment, present)
        step = next_step(deployment, present, tried)
        if step is None:
            return
        match step.action:
            case Action.FAIL:
                raise failure(step, deployment.name, home)
            case Action.WAIT:
                if reporter.elapsed_s - state_at_s >= STATE_EACH_S:
                    state, state_at_s = control_state(*running), reporter.elapsed_s
                reporter.waits(waiting_text(step.name, deployment.name, state))
                time.sleep(min(max(PAUSE_S, reporter.elapsed_s / 20), LONGEST_PAUSE_S))
            case Action.UPLOAD:
                missing = missing_objects(deployment, present)
                shown_upload(calls.s3, deployment.bucket, missing, step.name, reporter)
            case _:
                if step in tried:
                    raise TerminalError(f"{step.text}: the call was taken, and nothing came of it")
                take(calls, step, deployment)
                reporter.line(step.text)
                tried.append(step)


def take(calls: DeployCalls, step: DeployStep, deployment: ModelDeployment) -> None:
    """Take a step; that another run of the same command was quicker is no error."""
    try:
        calls.take(step, deployment)
    except ClientError as error:
        if not error.response["Error"]["Message"].startswith(TAKEN):
            raise


def failure(step: DeployStep, name: str, home: Home) -> TerminalError:
    """The error of a failure: its cause, the last lines of its log, how to remove what is left."""
    lines = [f"{step.name} failed: {step.reason or 'without a reason'}"]
    for title, messages in list(kept_logs(home, name, LOG_LINES).items())[-1:]:
        lines += [f"the last lines of {title}:", *(f"  {it}" for it in messages)]
    lines.append(
        "Once the cause is mended, the same command continues; "
        f"`hostelry rm {name}` removes what is left"
    )
    return TerminalError("\n".join(lines))


def waiting_text(waits_for: str, name: str, state: Mapping[str, Any] | None) -> str:
    """What is waited for, and how far its copies are; `state` None where control does not answer.

    The phase of the copy that is least far, and its reason where it has one.
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
