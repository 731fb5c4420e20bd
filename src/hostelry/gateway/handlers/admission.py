"""Carries out the pending queue's decisions until a request is on a copy."""

from collections.abc import Awaitable, Callable

import msgspec

from hostelry.dataplane.balancing.load_balancer import InFlightRequest
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.route_table import Destination
from hostelry.gateway.queueing.decisions import Decision, Refuse, Wait
from hostelry.gateway.queueing.pending_queue import PendingQueue, PendingRequest
from hostelry.gateway.queueing.turns import TurnQueue
from hostelry.gateway.quota_gate import QuotaGate
from hostelry.http1.reply import ConnectError

Send = Callable[[Destination, Measurement], Awaitable[InFlightRequest]]


class CallAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """Decides whether requests are sent, and when."""

    pending_queue: PendingQueue
    quotas: QuotaGate
    turns: TurnQueue


class SentRequest(msgspec.Struct, frozen=True):
    """A request that is on a copy. Its owner closes `in_flight` and ends `measured`."""

    destination: Destination
    in_flight: InFlightRequest
    measured: Measurement


async def send_when_ready(queue: PendingQueue, pending: PendingRequest, send: Send) -> SentRequest:
    """Send the request to a copy, after a wait if no copy is ready.

    `send` sends the request to one of the destination's copies, and raises ConnectError if all of
    them refuse the connection. Raises NotServedError, and the errors of `send` and of the
    request's `find`.
    """
    try:
        decision: Decision = queue.decide(pending)
        while not isinstance(decision, Refuse):
            if isinstance(decision, Destination):
                measured = pending.measured
                assert measured is not None, "the decision to send begins the measurement"
                try:
                    return SentRequest(decision, await send(decision, measured), measured)
                except ConnectError as error:
                    decision = queue.decide_after_refusal(decision, error)
            elif isinstance(decision, Wait):
                decision = await queue.wait(pending, decision)
            else:
                decision = await queue.ask(pending, decision)
    except BaseException:
        pending.end()
        raise
    pending.end()
    raise decision.error
