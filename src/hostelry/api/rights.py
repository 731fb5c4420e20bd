"""Rights that a caller needs on resources which a service will use in its name."""

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.permissions.needs.needed import NeededPermission
from hostelry.principals.decisions import Decisions, is_unlimited

DECISIONS = Decisions()
SEND, PUBLISH = "sqs:SendMessage", "sns:Publish"


def check_delivery(context: CallContext, arn: str) -> None:
    """Raise AccessDenied (403) unless the caller may send messages to the queue or topic itself.

    On AWS the policy of the queue or topic decides. Here such policies decide nothing.
    """
    service = arn.split(":", 3)[2] if arn.count(":") >= 3 else ""
    action = {"sqs": SEND, "sns": PUBLISH}.get(service)
    caller = context.caller
    if action is None or caller is None or is_unlimited(caller):
        return
    needed = (NeededPermission(action=action, resource=arn),)
    refusal = DECISIONS.find_refusal(caller, needed, context.request_keys)
    if refusal is not None:
        raise ServiceError("AccessDeniedException", refusal, 403)


def is_own(context: CallContext, arn: str) -> bool:
    """True if an ARN is of a resource of the caller's account."""
    parts = arn.split(":", 5)
    return len(parts) == 6 and parts[4] == context.scope.account
