"""FailureReason texts: the cause, then the last log lines of the model server."""

from collections.abc import Sequence

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.log_source import get_copy_source
from hostelry.domain.trouble import LAST_LINES, server_lines

MAX_REASON_CHARS = 1024
MAX_CAUSE_CHARS = 700
COPIES_NAMED = 3
CRASH_LOOP_RESTARTS = 3


def build_failure_reason(cause: str, log_tail: str = "", see_log: str = "") -> str:
    """`cause`, where its log is, then the model server's last lines that fit in the limit."""
    cause = cause.strip()
    lines = server_lines(log_tail)
    if see_log and not cause.endswith("."):
        cause += "."
    if not lines:
        return cause[: MAX_REASON_CHARS - len(see_log)] + see_log
    head = cause[: MAX_CAUSE_CHARS - len(see_log)] + see_log + LAST_LINES
    return head + take_last_lines(lines, MAX_REASON_CHARS - len(head))


def take_last_lines(lines: Sequence[str], max_chars: int) -> str:
    """The last of `lines` that fit in `max_chars`; at least the end of the very last."""
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
    """A sentence that names the log stream with the copy's output; SEE_LOG matches it."""
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
    """Why some of a component's desired copies do not serve; None if all do.

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
