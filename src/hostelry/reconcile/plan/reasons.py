"""FailureReason texts: the cause first, then the model server's last lines."""

from collections.abc import Sequence

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.fleet.launch.copy_log import NOTE

MAX_REASON_CHARS = 1024
MAX_CAUSE_CHARS = 700
COPIES_NAMED = 3
LOOPING_RESTARTS = 3
LAST_LINES = " Last log lines: "


def failure_reason(cause: str, log_tail: str = "") -> str:
    """`cause`, then as many of the model server's last lines as fit, whole where they can be."""
    cause = cause.strip()
    lines = server_lines(log_tail)
    if not lines:
        return cause[:MAX_REASON_CHARS]
    head = cause[:MAX_CAUSE_CHARS] + LAST_LINES
    return head + last_lines(lines, MAX_REASON_CHARS - len(head))


def server_lines(log_tail: str) -> list[str]:
    """What the model server itself said: the agent's lines beside it only repeat the cause."""
    lines = (line.strip() for line in log_tail.splitlines())
    return [line for line in lines if line and not line.startswith(NOTE.rstrip())]


def last_lines(lines: Sequence[str], max_chars: int) -> str:
    """The last of `lines` that fit into `max_chars`; of the last one its end, if it is too long."""
    kept = lines[-1][-max_chars:]
    for line in reversed(lines[:-1]):
        if len(line) + 1 + len(kept) > max_chars:
            break
        kept = f"{line}\n{kept}"
    return kept


def copy_failure(copy: Copy) -> str:
    """Why a copy that its agent gave up on failed."""
    cause = copy.status.reason or "the model server failed without a reason"
    return failure_reason(cause, copy.status.log_tail)


def what_is_missing(wanted: int, copies: Sequence[Copy]) -> str:
    """How many of the wanted copies are ready, and where each other one stands."""
    ready = sum(1 for it in copies if it.status.phase is CopyPhase.READY)
    waiting = [it for it in copies if it.status.phase is not CopyPhase.READY]
    stands = [_stand(it) for it in waiting[:COPIES_NAMED]]
    return "; ".join([f"{ready} of {wanted} copies ready", *stands])


def _stand(copy: Copy) -> str:
    why = f" ({copy.status.reason})" if copy.status.reason else ""
    return f"copy {copy.spec.id} on {copy.instance_id} is {copy.status.phase.value}{why}"


def placement_note(no_place: str | None, copies: Sequence[Copy]) -> str | None:
    """Why some of a component's wanted copies do not serve; None where there is nothing to say.

    A copy that ends again and again is named with the model server's last lines.
    """
    looping = [it for it in copies if it.status.restarts >= LOOPING_RESTARTS]
    troubled = [it for it in looping if it.status.phase is not CopyPhase.READY]
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    notes = [] if no_place is None else [no_place]
    for copy in [*failed, *troubled][:COPIES_NAMED]:
        times = f" after {copy.status.restarts} restarts" if copy.status.restarts else ""
        notes.append(f"copy {copy.spec.id} on {copy.instance_id}{times}: {copy_failure(copy)}")
    return "; ".join(notes)[:MAX_REASON_CHARS] or None
