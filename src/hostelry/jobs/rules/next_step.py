"""Next step after a failed attempt at a request: another attempt, or the end of the request.

trouble                                                  counts  next
------------------------------------------------------   ------  ----------------------------------
no copy takes the request                                no      an attempt later, until it expires
the object store is down                                 no      an attempt later, until it expires
the jobs process ends                                    no      an attempt of its successor
the model answers 5xx or 429, breaks off, times out      yes     an attempt later, or Failed
the output cannot be written (no bucket, no permission)  yes     an attempt later, or Failed
the model answers any other status but 2xx               -       Failed
the input is missing, denied, too large                  -       Failed
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

MAX_ATTEMPTS = 3
RETRY_PAUSES_S = (1.0, 5.0)  # after the first attempt, and after the second
NO_COPY_PAUSE_S = 0.5
STORE_PAUSE_S = 5.0
BUSY = 429


class Trouble(Enum):
    """The cause of an attempt without output."""

    NO_COPY = "no copy"
    STORE_DOWN = "object store down"
    STOPPED = "stopped"
    MODEL_FAILED = "model failed"
    TIMED_OUT = "timed out"
    MODEL_REFUSED = "model refused"
    NO_INPUT = "no input"
    NO_OUTPUT = "no output"


WAITS_S: Mapping[Trouble, float] = {
    Trouble.NO_COPY: NO_COPY_PAUSE_S,
    Trouble.STORE_DOWN: STORE_PAUSE_S,
    Trouble.STOPPED: 0.0,
}
REPEATED = frozenset({Trouble.MODEL_FAILED, Trouble.TIMED_OUT, Trouble.NO_OUTPUT})


class Later(msgspec.Struct, frozen=True):
    """Try again at `at`. `counts` is True if the attempt was one of `MAX_ATTEMPTS`."""

    at: float
    counts: bool


class End(msgspec.Struct, frozen=True):
    """The request has failed."""


def choose_next_step(trouble: Trouble, attempt: int, now: float) -> Later | End:
    """Choose the step after `trouble` in attempt number `attempt`, from 1."""
    if trouble in WAITS_S:
        return Later(now + WAITS_S[trouble], counts=False)
    if trouble in REPEATED and attempt < MAX_ATTEMPTS:
        return Later(now + RETRY_PAUSES_S[min(attempt, len(RETRY_PAUSES_S)) - 1], counts=True)
    return End()


def classify_status(status: int) -> Trouble | None:
    """Return the trouble of a model's answer. None for 2xx."""
    if 200 <= status < 300:
        return None
    return Trouble.MODEL_FAILED if status >= 500 or status == BUSY else Trouble.MODEL_REFUSED


def notify_again_at(attempts: int, now: float) -> float:
    """Return when a notification is sent again, after `attempts` failures."""
    return now + min(2.0 ** min(attempts, 10), 60.0)
