"""FailureReason texts of a copy: SageMaker's form first, then our own cause.

Source: the forms DescribeEndpoint's FailureReason is known to take; for components the same with
the component's name.
"""

from hostelry.domain.copy import CopySpec
from hostelry.fleet.agent.lifecycle import Ending, EndKind, RestartCopy, start_limit
from hostelry.fleet.rules.images import PROBE_BODY, PROBE_CONTENT_TYPE, ImageRule

OWN_PROBE = (
    f"Name a request that the image answers with 200: {PROBE_BODY} (and {PROBE_CONTENT_TYPE}) in "
    "the container's Environment, or [image.probe] in the operator's images.toml."
)


def start_failure(spec: CopySpec, ending: Ending) -> str:
    """Why a copy never became ready."""
    container = _container(spec)
    if ending.kind is EndKind.STARTUP_TIMEOUT:
        return f"The {container} did not pass the ping health check. {ending.detail}"
    if ending.kind is EndKind.PROBE_REFUSED:
        return f"The {container} passes its health check but serves no request. {ending.detail}"
    return (
        f"CannotStartContainerError. Please ensure the model container{_named(spec)} for "
        f"{_owner(spec.owner)} starts correctly. {ending.detail}"
    )


def download_failure(spec: CopySpec, uri: str, cause: str) -> str:
    """Why a copy's artifacts could not be downloaded."""
    return (
        f"Failed to download model data for {_owner(spec.owner)}{_named(spec)} from URL: "
        f'"{uri}". Please ensure that there is an object located at the URL and that it can be '
        f"read. {cause}"
    )


def noted(cause: str, rule: ImageRule | None) -> str:
    """The cause with the note of the image's rule, which is first if the image itself runs."""
    if rule is None or not rule.note:
        return cause
    return f"{rule.note} {cause}" if rule.kind == "container" else f"{cause} {rule.note}"


def late_detail(spec: CopySpec, cause: str) -> str:
    """The time limit that a copy exceeded, what it covers, and what the copy did instead."""
    limit = start_limit(spec)
    return f"It was not ready within {limit.seconds:g} s ({limit.covers}): {cause}."


def probe_detail(rule: ImageRule, fault: str | None) -> str:
    """Why no request proved a copy, and what helps where no probe is configured."""
    text = f"The request that proves readiness failed: {fault}"
    return f"{text}. {OWN_PROBE}" if rule.probe.any_answer else text


def proof_note(rule: ImageRule, status: int | None) -> str:
    """The evidence of a copy's readiness, for its log."""
    if not rule.probe.any_answer:
        return f"ready: the probe was answered with {status}"
    return f"ready: an empty object was answered with {status}, which proves little. {OWN_PROBE}"


def restart_note(restart: RestartCopy) -> str:
    """When a copy that ended restarts; `hostelry status` and the drills parse this text."""
    if restart.delay_s <= 0:
        return "It is started again at once."
    return f"It is started again in {restart.delay_s:g} s."


GONE_MEANWHILE = "The model server ended while no agent watched it."


def _container(spec: CopySpec) -> str:
    kind, _, name = spec.owner.partition("/")
    if kind == "variant":
        return f"{spec.container.hostname or 'primary'} container for production variant {name}"
    return f"container for {_owner(spec.owner)}"


def _named(spec: CopySpec) -> str:
    """The container's name, where its model has several."""
    name = spec.container.hostname
    return "" if name is None else f" {name}"


def _owner(owner: str) -> str:
    kind, _, name = owner.partition("/")
    if kind == "variant":
        return f"variant {name}"
    return f"inference component {name}" if kind == "component" else owner
