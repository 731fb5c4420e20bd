"""FailureReason texts: the cause first, then the model server's last lines."""

from collections.abc import Sequence

from hostelry.domain.copy import Copy, CopyPhase

MAX_REASON_CHARS = 1024
MAX_CAUSE_CHARS = 700
COPIES_NAMED = 3


def failure_reason(cause: str, log_tail: str = "") -> str:
    """`cause`, then as many of the last log lines as fit."""
    cause = cause.strip()
    tail = log_tail.strip()
    if not tail:
        return cause[:MAX_REASON_CHARS]
    head = cause[:MAX_CAUSE_CHARS] + " Last log lines: "
    return head + tail[-(MAX_REASON_CHARS - len(head)) :]


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
