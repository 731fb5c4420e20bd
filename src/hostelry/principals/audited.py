"""Callers and decisions as the audit trail records them. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.audit.record import AuditedCaller
from hostelry.permissions.authorization import Authorization
from hostelry.principals.caller import Caller, CallerKind

OWN_SERVICE = "sagemaker.amazonaws.com"
ALLOWED, DENIED = "allowed", "denied"


def describe_caller(caller: Caller) -> AuditedCaller:
    """A caller with its session, if its keys are temporary."""
    session, kind = caller.session, caller.kind
    is_role = kind is CallerKind.ROLE
    return AuditedCaller(
        kind=kind.value,
        account=caller.account,
        arn=caller.arn,
        principal_id=caller.principal if kind is CallerKind.AGENT else caller.user_id,
        access_key_id=caller.access_key_id,
        user_name=caller.name if kind is CallerKind.USER else "",
        issuer_arn=caller.principal_arn if is_role else "",
        issuer_id=caller.user_id.partition(":")[0] if is_role else "",
        issuer_name=caller.name if is_role else "",
        issued_at=session.issued_at or None if session is not None else None,
        source_identity=session.source_identity if session is not None else "",
        invoked_by=OWN_SERVICE if kind is CallerKind.AGENT else "",
    )


def describe_decision(decision: Authorization) -> dict[str, Any]:
    """The decision, the reason, and the statement that decided, if any."""
    statement: Mapping[str, Any] | None = None
    if decision.statement is not None:
        decided = decision.statement
        statement = {
            "policy": decided.policy_id,
            "type": decided.policy_type,
            "sid": decided.sid,
            "index": decided.index,
        }
    found = {
        "decision": ALLOWED if decision.is_allowed else DENIED,
        "reason": decision.reason.value,
        "statement": statement,
    }
    return {name: it for name, it in found.items() if it is not None}
