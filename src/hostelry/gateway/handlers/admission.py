"""Admission: carries out the pending queue's decisions until a request is on a copy."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hostelry.dataplane.balancing.load_balancer import InFlightRequest
from hostelry.dataplane.http.reply import ConnectError
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.route_table import Destination
from hostelry.gateway.queueing.decisions import Decision, Refuse, Wait
from hostelry.gateway.queueing.pending_queue import PendingQueue, PendingRequest

Send = Callable[[Destination, Measurement], Awaitable[InFlightRequest]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that is on a copy; its owner closes `in_flight` and ends `measured`."""

    destination: Destination
    in_flight: InFlightRequest
    measured: Measurement


async def admit(queue: PendingQueue, pending: PendingRequest, send: Send) -> Admitted:
    """The request on a copy, after a wait if none was ready.

    `send` sends it to one of the destination's copies; raises ConnectError. Raises what the
    request's `find` and `send` do, and NotServedError.
    """
    try:
        decision: Decision = queue.decide(pending)
        while not isinstance(decision, Refuse):
            if isinstance(decision, Destination):
                measured = pending.measured
                assert measured is not None, "the decision to send begins the measurement"
                try:
                    return Admitted(decision, await send(decision, measured), measured)
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
