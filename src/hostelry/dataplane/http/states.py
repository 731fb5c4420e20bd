"""States of a client connection, as two tables: state -> {event: next state}.

A connection runs two machines, as in h11: one for the request that is being read (`ReadState`), and
one for the requests that are answered (`ServeState`). They run side by side, because a client may
send its next request before it has the answer to the last one.

Every change of state is a look-up in these tables. An event that the state does not list is a
defect of the gateway and raises KeyError. The tables leave out the flow control of the transport
(reading or writing is paused) and 100 Continue, because both hold in several states.

A signature verifies the sender of a request. A small request is checked once it is whole, because
taking it costs less than reading its head twice. The head of a larger request may prove the sender.
If it does not, the bytes count as unverified (`connection_limits.py`).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Literal

ReadEvent = Literal[
    "begun", "small_head", "head", "streamed", "verified", "unverified", "whole", "refused"
]
ServeEvent = Literal["serve", "answered", "answered_early", "refused", "refusal_sent"]


class ReadState(Enum):
    """State of the request that is being read.

    `in_body`: the head is whole, the body is not. `is_held`: the bytes count as unverified.
    """

    IDLE = "between requests"
    HEAD = "head"
    SMALL_BODY = "body, announced to be small"
    BODY = "body, its head not looked at yet"
    UNVERIFIED_BODY = "body, its sender not known"
    VERIFIED_BODY = "body, its sender known by the head"
    STREAMED_BODY = "body, its request served while it comes in"
    REFUSED = "refused; nothing is read any more"

    next: Mapping[ReadEvent, "ReadState"]
    in_body: bool
    is_held: bool


class ServeState(Enum):
    """State of the requests of a connection, which are answered one at a time.

    `is_busy`: a handler is answering a request. `is_refusing`: reading has ended with a refusal.
    """

    FRESH = "no request yet"
    WAITING = "waiting for the next request"
    BUSY = "a request is being answered"
    REFUSED = "a refusal is to be sent, after the whole requests before it"
    REFUSED_BUSY = "a refusal is to be sent; a request before it is being answered"
    LINGERING = "the refusal, or an answer before the body's end, is sent; what comes is dropped"

    next: Mapping[ServeEvent, "ServeState"]
    is_busy: bool
    is_refusing: bool


_R, _S = ReadState, ServeState
READ_TABLE: Mapping[ReadState, Mapping[ReadEvent, ReadState]] = {
    _R.IDLE: {"begun": _R.HEAD, "refused": _R.REFUSED},
    _R.HEAD: {
        "small_head": _R.SMALL_BODY,
        "head": _R.BODY,
        "streamed": _R.STREAMED_BODY,
        "refused": _R.REFUSED,
    },
    _R.SMALL_BODY: {
        "verified": _R.VERIFIED_BODY,
        "unverified": _R.UNVERIFIED_BODY,
        "whole": _R.IDLE,
        "refused": _R.REFUSED,
    },
    _R.BODY: {
        "verified": _R.VERIFIED_BODY,
        "unverified": _R.UNVERIFIED_BODY,
        "whole": _R.IDLE,
        "refused": _R.REFUSED,
    },
    _R.UNVERIFIED_BODY: {"whole": _R.IDLE, "refused": _R.REFUSED},
    _R.VERIFIED_BODY: {"whole": _R.IDLE, "refused": _R.REFUSED},
    _R.STREAMED_BODY: {"whole": _R.IDLE, "refused": _R.REFUSED},
    _R.REFUSED: {},
}
SERVE_TABLE: Mapping[ServeState, Mapping[ServeEvent, ServeState]] = {
    _S.FRESH: {"serve": _S.BUSY, "refused": _S.REFUSED},
    _S.WAITING: {"serve": _S.BUSY, "refused": _S.REFUSED},
    _S.BUSY: {
        "answered": _S.WAITING,
        "answered_early": _S.LINGERING,
        "refused": _S.REFUSED_BUSY,
    },
    _S.REFUSED: {"serve": _S.REFUSED_BUSY, "refusal_sent": _S.LINGERING},
    _S.REFUSED_BUSY: {"answered": _S.REFUSED, "answered_early": _S.LINGERING},
    _S.LINGERING: {},
}
# Each state has its own table, so that a look-up hashes only a constant text.
for _read, _read_moves in READ_TABLE.items():
    _read.next = _read_moves
    _read.in_body = "whole" in _read_moves
    _read.is_held = _read is _R.HEAD or (
        _read.in_body and _read not in (_R.SMALL_BODY, _R.STREAMED_BODY)
    )
for _serve, _serve_moves in SERVE_TABLE.items():
    _serve.next = _serve_moves
    _serve.is_busy = "answered" in _serve_moves
    _serve.is_refusing = _serve in (_S.REFUSED, _S.REFUSED_BUSY, _S.LINGERING)
