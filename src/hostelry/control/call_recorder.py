"""Records of AWS calls in the audit trail: before a call that changes something, and after each."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.audit.caller import name_unknown
from hostelry.audit.record import AuditedCall, AuditedCaller, build_call_event, is_read
from hostelry.audit.redaction import show_params, show_result
from hostelry.audit.resources import find_resources
from hostelry.audit.trail import AuditTrail
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.ids import new_uuid
from hostelry.domain.scope import Scope
from hostelry.permissions.authorization import Authorization
from hostelry.principals.audited import ALLOWED, DENIED, describe_decision

LOG = logging.getLogger(__name__)
DENIALS = ("AccessDenied", "UnauthorizedOperation", "NotAuthorized", "AuthorizationError")


class NotedCall(msgspec.Struct, kw_only=True):
    """A call that is being answered. Its facts are filled in as they become known.

    `caller` is set once the principal is known. `decision` is the last one on the caller's
    permissions.
    """

    scope: Scope
    at: float
    request_id: str
    access_key_id: str = ""
    address: str = ""
    user_agent: str = ""
    service: str = ""
    operation: str = ""
    params: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    caller: AuditedCaller | None = None
    decision: Authorization | None = None

    def note_decision(self, decision: Authorization) -> None:
        """Note a decision on the caller's permissions."""
        self.decision = decision

    def name_caller(self, caller: AuditedCaller) -> None:
        """Note a caller that a token in the parameters proves. The call concerns its account."""
        self.caller = caller
        self.scope = Scope(caller.account, self.scope.region)

    @property
    def must_be_recorded(self) -> bool:
        """Whether the call may only be done if it can be recorded: it changes something.

        A call that issues keys counts as one.
        """
        issues_keys = self.service == "sts" and self.operation != "GetCallerIdentity"
        return issues_keys or not is_read(self.service, self.operation)


class CallRecorder:
    """Records calls in `trail`. Without a trail nothing is recorded."""

    def __init__(self, trail: AuditTrail | None) -> None:
        self._trail = trail

    def check(self, noted: NotedCall) -> None:
        """Raise ServiceError if the call must not be done, because it cannot be recorded."""
        if self._trail is None or not noted.must_be_recorded:
            return
        trouble = self._trail.find_trouble()
        if trouble is not None:
            raise ServiceError(
                "ServiceUnavailable",
                f"{noted.operation} was not done, because the audit log cannot be written:"
                f" {trouble}. Free some space on the disk of the platform's home, and try again.",
                503,
            )

    def record(self, noted: NotedCall, error: ServiceError | None) -> ServiceError | None:
        """Record a call that is over. Returns the error with which it is answered, if any.

        A change that is done but not recorded is answered with an error, because it may be lost to
        the trail.
        """
        if self._trail is None or not noted.service:  # it named no operation
            return error
        is_change = noted.must_be_recorded and error is None
        try:
            event = build_call_event(describe_call(noted, error))
            waits = noted.must_be_recorded or error is not None
            if is_change:
                self._trail.record(event, noted.at)
            else:
                self._trail.try_to_record(event, noted.at, waits=waits)
        except OSError as failure:
            self._trail.count_lost(1)
            LOG.error("request %s: no record of %s: %s", noted.request_id, noted.operation, failure)  # noqa: TRY400 - the message says all
            return ServiceError(
                "ServiceUnavailable",
                f"{noted.operation} was done, but no record of it is in the audit log: {failure}."
                " Describe the resource before you try again.",
                503,
            )
        return error


def explain_failure(error: Exception, noted: NotedCall) -> ServiceError:
    """The error that answers a call which raised `error`."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, RetryableError):
        LOG.warning("request %s: %s", noted.request_id, error)
        return ServiceError("ServiceUnavailable", f"Try again: {error}", 503)
    message = f"An internal error occurred. The request id is {noted.request_id}."
    return ServiceError("InternalFailure", message, 500)


def describe_call(noted: NotedCall, error: ServiceError | None) -> AuditedCall:
    """The facts of a call that is over, without secrets."""
    account, region = noted.scope.account, noted.scope.region
    params = noted.params or {}
    decision: dict[str, Any] = {}
    if noted.decision is not None:
        decision = describe_decision(noted.decision)
    elif error is None:
        decision = {"decision": ALLOWED}
    elif error.code.startswith(DENIALS):
        decision = {"decision": DENIED}
    result = noted.result if error is None else None
    return AuditedCall(
        at=noted.at,
        caller=noted.caller or name_unknown(account, noted.access_key_id),
        account=account,
        region=region,
        service=noted.service,
        operation=noted.operation,
        request_id=noted.request_id,
        event_id=new_uuid(),
        address=noted.address,
        user_agent=noted.user_agent,
        params=show_params(noted.service, noted.operation, params),
        result=show_result(noted.service, noted.operation, result) if result else None,
        error_code=error.code if error is not None else "",
        error_message=error.message if error is not None else "",
        resources=find_resources(noted.service, params, account, region),
        decision=decision,
    )
