"""Answers that a client polls for, as DJL Serving's front end offers them: refused.

x-synchronous: false   asks for a token instead of the answer
x-starting-token       asks for the next items of such an answer
"""

from starlette.requests import Request

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import shown

SYNCHRONOUS = "x-synchronous"
TOKEN = "x-starting-token"


def check_synchronous(request: Request) -> None:
    """Raise Refusal for a request whose answer would be polled for."""
    synchronous = request.headers.get(SYNCHRONOUS, "true")
    if synchronous.lower() == "false":
        raise bad_request(
            f"{SYNCHRONOUS} is {shown(synchronous)}; each answer is sent when it is there: leave "
            "the header out, and set stream for tokens as they come"
        )
    if TOKEN in request.headers:
        raise bad_request(
            f"{TOKEN} is given; this server keeps no answers to poll for: leave the header out"
        )
