"""Ends of statuses: deadlines, InService or Failed, and the reasons that are shown."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.log_source import get_copy_source
from hostelry.domain.status import Event, delete_deadline, is_final, next_status, start_deadline
from hostelry.domain.trouble import LAST_LINES, server_lines
from hostelry.reconcile.plan.endpoint_state import EndpointState


def set_deadlines(state: EndpointState, now: float) -> EndpointState:
    """The state in which exactly the statuses that are not final have a deadline."""
    if state.endpoint is not None:
        state = state.replace_endpoint(_set_endpoint_deadline(state.endpoint, now))
    changing = [it for it in state.dirty_components() if not _is_at_rest(it)]
    return state.replace_components(_set_component_deadline(it, now) for it in changing)


def is_overdue(record: Endpoint | InferenceComponent, now: float) -> bool:
    """Whether the deadline of a record's status has passed."""
    return record.deadline_at is not None and now >= record.deadline_at


def _set_endpoint_deadline(endpoint: Endpoint, now: float) -> Endpoint:
    if is_final(endpoint.status):
        return replace(endpoint, deadline_at=None)
    if endpoint.deadline_at is not None:
        return endpoint
    if endpoint.status is EndpointStatus.DELETING:
        return replace(endpoint, deadline_at=delete_deadline(now))
    variants = [it.variant for it in (endpoint.pending or endpoint.active).variants]
    download_s = max(it.download_timeout_s for it in variants)
    startup_s = max(it.startup_timeout_s for it in variants)
    provisioning_s = max(it.provisioning_s for it in variants)
    deadline_at = start_deadline(now, download_s, startup_s, provisioning_s)
    return replace(endpoint, deadline_at=deadline_at)


def _is_at_rest(component: InferenceComponent) -> bool:
    return component.status is ComponentStatus.IN_SERVICE and component.deadline_at is None


def _set_component_deadline(component: InferenceComponent, now: float) -> InferenceComponent:
    if is_final(component.status) == (component.deadline_at is None):
        return component
    if component.deadline_at is not None:
        return replace(component, deadline_at=None)
    if component.status is ComponentStatus.DELETING:
        return replace(component, deadline_at=delete_deadline(now))
    spec = component.spec
    timeouts = (0.0, 0.0) if spec is None else (spec.download_timeout_s, spec.startup_timeout_s)
    return replace(component, deadline_at=start_deadline(now, *timeouts))


R = TypeVar("R", Endpoint, InferenceComponent)


def end_in_service(record: R, failure: str | None, now: float) -> R:
    """The record InService. `failure` is why an update was rolled back, None if it was not."""
    return _end_status(record, Event.READY if failure is None else Event.ROLLED_BACK, failure, now)


def end_failed(record: R, failure: str, now: float) -> R:
    """The record Failed, with `failure` as its reason."""
    return _end_status(record, Event.FAIL, failure, now)


def _end_status(record: R, event: Event, failure: str | None, now: float) -> R:
    return replace(
        record,
        status=next_status(record.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else build_failure_reason(failure),
        modified_at=now,
    )


MAX_REASON_CHARS = 1024
MAX_CAUSE_CHARS = 700
COPIES_NAMED = 3
CRASH_LOOP_RESTARTS = 3


def build_failure_reason(cause: str, log_tail: str = "", see_log: str = "") -> str:
    """`cause`, the place of its log, then the model server's last lines that fit in the limit."""
    cause = cause.strip()
    lines = server_lines(log_tail)
    if see_log and not cause.endswith("."):
        cause += "."
    if not lines:
        return cause[: MAX_REASON_CHARS - len(see_log)] + see_log
    head = cause[: MAX_CAUSE_CHARS - len(see_log)] + see_log + LAST_LINES
    return head + take_last_lines(lines, MAX_REASON_CHARS - len(head))


def take_last_lines(lines: Sequence[str], max_chars: int) -> str:
    """The last of `lines` that fit in `max_chars`, or the end of the very last if none fits."""
    kept = lines[-1][-max_chars:]
    for line in reversed(lines[:-1]):
        if len(line) + 1 + len(kept) > max_chars:
            break
        kept = f"{line}\n{kept}"
    return kept


def describe_copy_failure(copy: Copy) -> str:
    """The failure reason of a FAILED copy."""
    cause = copy.status.reason or "the model server failed without a reason"
    return build_failure_reason(cause, copy.status.log_tail, refer_to_log(copy))


def refer_to_log(copy: Copy) -> str:
    """A sentence that names the log stream with the copy's output. SEE_LOG matches it."""
    source = get_copy_source(copy)
    return f" See the log stream {source.stream} of group {source.group}."


def describe_missing(desired: int, copies: Sequence[Copy]) -> str:
    """How many of the desired copies are ready, and the phase of the others."""
    ready = sum(1 for it in copies if it.status.phase is CopyPhase.READY)
    waiting = [it for it in copies if it.status.phase is not CopyPhase.READY]
    stands = [_stand(it) for it in waiting[:COPIES_NAMED]]
    return "; ".join([f"{ready} of {desired} copies ready", *stands])


def _stand(copy: Copy) -> str:
    why = f" ({copy.status.reason})" if copy.status.reason else ""
    name = copy.spec.container.hostname
    of = "" if name is None else f" of container {name}"
    return f"copy {copy.spec.id}{of} on {copy.instance_id} is {copy.status.phase.value}{why}"


def build_placement_note(no_place: str | None, copies: Sequence[Copy]) -> str | None:
    """Why some of a component's desired copies do not serve. None if all do.

    A crash-looping copy is named with the last lines of its model server.
    """
    looping = [it for it in copies if it.status.restarts >= CRASH_LOOP_RESTARTS]
    troubled = [it for it in looping if it.status.phase is not CopyPhase.READY]
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    notes = [] if no_place is None else [no_place]
    for copy in [*failed, *troubled][:COPIES_NAMED]:
        times = f" after {copy.status.restarts} restarts" if copy.status.restarts else ""
        notes.append(
            f"copy {copy.spec.id} on {copy.instance_id}{times}: {describe_copy_failure(copy)}"
        )
    return "; ".join(notes)[:MAX_REASON_CHARS] or None
