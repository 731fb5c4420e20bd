"""Calls that may be sent to control again, and why a call got no answer. Pure.

result of the call                         a call that only reads  any other
-----------------------------------------  ----------------------  -------------------------------
no connection, so no byte of it was taken  sent again              sent again
it answers that it did not take the call   sent again              sent again
no answer: closed, reset, too late, or     sent again              an error: it may have been
another control leads meanwhile                                    executed
an answer, whatever it says                passed on               passed on

A call only reads by its AWS operation (Describe..., Get..., List...), or by its method (GET, HEAD)
if its query names no operation.
"""

import re
from enum import Enum

from hostelry.http1.reply import (
    ConnectError,
    ControlAwayError,
    DeadlineError,
    TooLargeError,
    UpstreamError,
)

CONTROL_BACK_S = 10.0  # a call waits so long for a control that restarts
READ_LINE = re.compile(
    rb"(?:GET|HEAD) |POST /service/\w{1,99}/operation/(?:Describe|Get|List)[A-Z]"
)
READ_TARGET = re.compile(rb"\r\nx-amz-target: ?[\w.]{1,99}\.(?-i:(?:Describe|Get|List)[A-Z])", re.I)
READ_ACTION = re.compile(rb"Action=(?:Describe|Get|List)[A-Z]")


class CallOutcome(Enum):
    """What came of sending a call to a control."""

    NOT_TAKEN = "no byte of it was taken"
    NOT_EXECUTED = "the control says that it did not take it"
    UNANSWERED = "it may have been executed"
    ANSWERED = "there is an answer"


def may_send_again(outcome: CallOutcome, *, only_reads: bool, is_whole: bool) -> bool:
    """True if the call may be sent to control again, by the module's table.

    `is_whole`: its whole body can be sent again, and its time limit has not passed.
    """
    if outcome is CallOutcome.ANSWERED or not is_whole:
        return False
    return outcome is not CallOutcome.UNANSWERED or only_reads


def why_unanswered(error: UpstreamError, limit_s: float) -> str:
    """Explain why control gave no answer within `limit_s`, and what its caller can do."""
    if isinstance(error, ControlAwayError | TooLargeError):
        return str(error)
    if isinstance(error, ConnectError):
        return (
            "The control plane is restarting and did not come back in time; `hostelry status` says"
            " why. Try again in a few seconds."
        )
    if isinstance(error, DeadlineError):
        return (
            f"The control plane did not answer within {limit_s:g} s; it may still carry the call"
            " out. Look what has changed before you try again, and ask for less in one call."
        )
    return (
        "The control plane ended before it answered, and may have carried the call out. Look what"
        " has changed before you try again."
    )


def is_read(head: bytes, body: bytes) -> bool:
    """Whether executing the request twice changes nothing."""
    line = head.partition(b"\r\n")[0]
    if READ_LINE.match(line):
        return line.count(b"Action=") == len(READ_ACTION.findall(line))
    return READ_TARGET.search(head) is not None or READ_ACTION.match(body) is not None
