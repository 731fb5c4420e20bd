"""Decisions about a request that cannot be sent at once, as pure functions.

The pending queue calls them, and a handler carries the decisions out (`handlers/admission.py`).
"""

from collections.abc import Callable

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import NoCopyError, UnknownNameError
from hostelry.dataplane.balancing.load_balancer import CopiesBusyError
from hostelry.dataplane.route_table import Destination
from hostelry.domain.at_zero import AtZero
from hostelry.domain.load import LoadKey
from hostelry.http1.reply import ConnectError
from hostelry.routing.no_copy import NoCopyAction, num_to_release

REFUSED_S = 0.25  # pause before copies that refuse connections are tried again


class NotServedError(ServiceError):
    """No copy came in time, or too many requests wait for one."""

    def __init__(self, message: str) -> None:
        super().__init__("ServiceUnavailable", message, 503)


class EnvironmentNotReadyError(ServiceError):
    """No environment of a serverless variant came in time."""

    def __init__(self, message: str) -> None:
        super().__init__("ModelNotReadyException", message, 429)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The request joins the queue for `destination`.

    `wakes` asks control to start a copy. The request stays at least until `not_before_s`, unless
    the routes change.
    """

    destination: Destination
    wakes: bool = False
    not_before_s: float = 0.0


class AskControl(msgspec.Struct, frozen=True, kw_only=True):
    """Ask if control knows of copies for `key` that the routes lack. If not, fail with `error`."""

    key: LoadKey
    error: NoCopyError | UnknownNameError


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The request fails with `error`."""

    error: ServiceError | ConnectError


# A destination is the decision to send the request there: the usual case allocates nothing.
Decision = Destination | Wait | AskControl | Refuse


def decide_without_copy(
    error: NoCopyError | UnknownNameError, *, may_wait: bool, has_asked: bool
) -> Wait | AskControl | Refuse:
    """Decide about a request to which the routes answer `error`.

    error                      may wait  has asked  decision
    no copy, action WAIT       yes       any        Wait
    no copy, action WAKE       yes       any        Wait, which wakes
    no copy, hold, REFUSE      yes       no         AskControl: a count may just have been raised
    unknown name               yes       no         AskControl: it may just have been created
    any other                                       Refuse
    """
    if not may_wait:
        return Refuse(error=error)
    if isinstance(error, UnknownNameError):
        return Refuse(error=error) if has_asked else AskControl(key=error.key, error=error)
    destination = error.destination
    if error.action in (NoCopyAction.WAIT, NoCopyAction.WAKE):
        return Wait(destination=destination, wakes=error.action is NoCopyAction.WAKE)
    if has_asked or destination.at_zero is AtZero.COMPAT:
        return Refuse(error=error)
    return AskControl(key=destination.key, error=error)


def decide_after_refusal(
    destination: Destination, error: ConnectError, now_s: float
) -> Wait | Refuse:
    """Decide about a request whose copies all refused the connection, or are all in use.

    error        at_zero  decision
    copies busy  any      Wait, which wakes: until a request ends, or there is another environment
    refused      hold     Wait, at least REFUSED_S
    refused      compat   Refuse
    """
    if isinstance(error, CopiesBusyError):
        return Wait(destination=destination, wakes=True, not_before_s=now_s)
    if destination.at_zero is AtZero.COMPAT:
        return Refuse(error=error)
    return Wait(destination=destination, not_before_s=now_s + REFUSED_S)


def num_released(
    found: Destination | ServiceError, syncing: bool, in_flight: Callable[[str], int]
) -> int:
    """Count the requests of a queue to release, given the routes' answer to the first one.

    found                     syncing  released
    a serverless destination  any      one for each copy without a request
    any other destination     any      the result of `num_to_release` for its copies
    no copy, WAIT or WAKE     no       0
    no copy, REFUSE           yes      0: the routes are behind control
    unknown name              yes      0: likewise
    any other error                    1: the first request fails, and the next one is first then
    """
    if isinstance(found, Destination):
        if found.serverless is not None:
            return sum(not in_flight(copy.id) for copy in found.copies)
        return num_to_release([in_flight(copy.id) for copy in found.copies])
    if isinstance(found, NoCopyError):
        waits_on = (NoCopyAction.REFUSE,) if syncing else (NoCopyAction.WAIT, NoCopyAction.WAKE)
        return 0 if found.action in waits_on else 1
    return 0 if syncing and isinstance(found, UnknownNameError) else 1


def lacking_copies(found: Destination | ServiceError) -> Destination | None:
    """Find the destination that needs copies, given the answer of the routes.

    found                          result
    no copy, WAKE                  its destination
    a serverless destination       that destination: all its environments are in use
    any other                      None
    """
    if isinstance(found, NoCopyError) and found.action is NoCopyAction.WAKE:
        return found.destination
    if isinstance(found, Destination) and found.serverless is not None:
        return found
    return None


def late_error(destination: Destination, waited_s: float) -> ServiceError:
    """Build the error of a request whose wait expired."""
    message = late_message(destination, waited_s)
    if destination.serverless is not None:
        return EnvironmentNotReadyError(message)
    return NotServedError(message)


def late_message(destination: Destination, waited_s: float) -> str:
    """Build the message of a request whose wait expired."""
    what = describe_target(destination.key)
    if destination.serverless is not None:
        num, most = len(destination.copies), destination.serverless.max_concurrency
        state = f"of which {num} of at most {most} serve, and none is free"
    elif destination.copies:
        state = "whose copies take no connections"
    elif destination.component_name is None:
        state = "of which none is ready"
    elif destination.desired_copies:
        state = f"of which {destination.desired_copies} wanted, none is ready"
    else:
        state = "which was asked for and is not on its way yet"
    why = f": {destination.waiting_for}" if destination.waiting_for else ""
    return f"The request waited {waited_s:.1f} s for a copy of {what}, {state}{why}. Try again."


def full_message(key: LoadKey, limit: str) -> str:
    """Build the message of a request that may not wait, because `limit` is reached."""
    return (
        f"No copy of {describe_target(key)} can take the request now, and it cannot wait: {limit}."
    )


def describe_target(key: LoadKey) -> str:
    """Name the component or the endpoint of a request."""
    if key.component_name is not None:
        return f"inference component {key.component_name}"
    return f"endpoint {key.endpoint_name}"
