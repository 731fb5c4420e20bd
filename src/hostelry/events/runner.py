"""The loop around calls of events: begun on disk, made, and settled last.

A kill between a call and its settling makes it again: a target is called at least once. An
operation that creates a resource finds it there then, which is read as done. While a full disk
refuses the outcome of a call, the runner keeps it in memory and does not call again.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, ServiceError
from hostelry.domain.event_rule import EventCall
from hostelry.domain.object_event import MAX_CHAIN_LENGTH
from hostelry.events.call_rows import CallRows, WaitingCall
from hostelry.messaging.queue_messages import NewMessage
from hostelry.schedules.targets import TargetCall, TargetError, build_call

LOG = logging.getLogger(__name__)
MOST_AT_ONCE = 100
LONGEST_PAUSE_S = 300.0
IDLE_S = 60.0
INVOCATIONS, FAILED, DEAD = "Invocations", "FailedInvocations", "InvocationsSentToDlq"
IN_USE = "ResourceInUse"
MESSAGES = ("sns", "sqs")


class CallDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a runner.

    `invoke` makes a call in the event's scope, or raises ServiceError. `build_letters` builds the
    dead letters of a call that is given up, with the reason. `announce` wakes the receivers of a
    queue. `count` counts under a metric's name.
    """

    rows: CallRows
    clock: Clock
    gateway_url: str
    invoke: Callable[[EventCall, TargetCall], None]
    build_letters: Callable[[EventCall, ServiceError], Sequence[NewMessage]]
    announce: Callable[[str], None]
    count: Callable[[EventCall, str], None]


class CallRunner:
    """Makes the calls that events ask for. `run_due` is called by one thread."""

    def __init__(self, deps: CallDeps) -> None:
        self._deps = deps
        # The outcomes of calls, by the call and the number of its attempts before.
        self._unrecorded: dict[tuple[str, int], ServiceError | None] = {}

    def run_due(self) -> None:
        """Make every call that is due."""
        while due := self._deps.rows.due(self._deps.clock.now(), MOST_AT_ONCE):
            for waiting in due:
                self._make(waiting)

    def next_at(self) -> float:
        """When to look again, at the latest."""
        latest = self._deps.clock.now() + IDLE_S
        following = self._deps.rows.next_at()
        return latest if following is None else min(latest, following)

    def _make(self, waiting: WaitingCall) -> None:
        attempt = (waiting.call.id, waiting.attempts)
        if attempt not in self._unrecorded:
            self._deps.count(waiting.call, INVOCATIONS)
            failure = self._try_call(waiting)
            if failure is not None:
                self._deps.count(waiting.call, FAILED)
            self._unrecorded[attempt] = failure
        self._record(waiting, self._unrecorded[attempt])
        del self._unrecorded[attempt]

    def _record(self, waiting: WaitingCall, failure: ServiceError | None) -> None:
        """Keep the outcome of a call."""
        call, deps = waiting.call, self._deps
        if failure is None:
            LOG.info("an event of %s called %s", call.source, call.target_arn)
            deps.rows.finish(call)
            return
        next_at = next_attempt_at(waiting, failure, deps.clock.now())
        LOG.warning(
            "a call of %s by an event of %s, attempt %d: %s: %s (%s)",
            call.target_arn,
            call.source,
            waiting.attempts + 1,
            failure.code,
            failure.message,
            "no further attempt" if next_at is None else "another one follows",
        )
        if next_at is not None:
            deps.rows.postpone(call, waiting.attempts + 1, next_at)
            return
        letters = deps.build_letters(call, failure)
        if letters:
            deps.count(call, DEAD)
        deps.rows.finish(call, letters)
        for letter in letters:
            deps.announce(letter.queue_arn)

    def _try_call(self, waiting: WaitingCall) -> ServiceError | None:
        """Make the call. Returns why it failed, or None. A call made before a kill counts."""
        call, deps = waiting.call, self._deps
        try:
            target = build_call(call.target_arn, call.text, deps.gateway_url)
            check_chain(call, target)
            if not waiting.is_begun:
                deps.rows.begin(call)
            deps.invoke(call, target)
        except TargetError as error:
            return ServiceError("ValidationException", str(error))
        except ServiceError as error:
            return None if waiting.is_begun and error.code == IN_USE else error
        except HostelryError as error:
            return ServiceError("ServiceUnavailable", str(error), 503)
        return None


def check_chain(call: EventCall, target: TargetCall) -> None:
    """Raise ServiceError where the object is the output of too many jobs in a row."""
    if call.chain_length >= MAX_CHAIN_LENGTH and target.service not in MESSAGES:
        raise ServiceError(
            "EventChainTooLong",
            f"The object is the output of {call.chain_length} jobs in a row, each started by the"
            f" output of the one before; {MAX_CHAIN_LENGTH} is the limit, so that outputs below a"
            " watched prefix do not start jobs for ever. Write outputs where no rule looks.",
        )


def next_attempt_at(waiting: WaitingCall, error: ServiceError, now: float) -> float | None:
    """When a call that has just failed is repeated. None means never."""
    call = waiting.call
    may_pass = error.http_status >= 500 or error.http_status == 429
    if not may_pass or waiting.attempts >= call.max_retries:
        return None
    at = now + min(LONGEST_PAUSE_S, 2.0 ** min(waiting.attempts, 16))
    return at if at - call.event_at <= call.max_age_s else None
