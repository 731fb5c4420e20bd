"""Decides on the permissions that a call needs, by the policies of its caller."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from hostelry.permissions.authorization import Authorization, ResourcePolicy, explain_denial
from hostelry.permissions.decision_cache import DecisionCache
from hostelry.permissions.evaluation import AccessRequest
from hostelry.permissions.needs.needed import NeededPermission
from hostelry.permissions.wildcard import Context, TooMuchMatching
from hostelry.principals.caller import Caller


def _find_no_policy(_: str) -> ResourcePolicy | None:
    return None


def _note_nothing(_: Authorization) -> None:
    pass


class Decisions:
    """Decides on calls, and keeps decisions for calls that repeat."""

    def __init__(self) -> None:
        self._cache = DecisionCache()

    def find_refusal(
        self,
        caller: Caller,
        needed: Iterable[NeededPermission],
        request_keys: Context,
        find_policy: Callable[[str], ResourcePolicy | None] = _find_no_policy,
        note: Callable[[Authorization], None] = _note_nothing,
    ) -> str | None:
        """Why the caller lacks one of the needed permissions, in AWS's words. None: it has all.

        `find_policy` returns the policy of the resource with an ARN. `note` gets each decision.
        """
        for permission in needed:
            action, resource = permission.action, permission.resource
            keys = {**caller.keys, **request_keys, **permission.context}
            request = AccessRequest(action=action, resource=resource, context=keys)
            policy = find_policy(resource)
            try:
                decision = self._cache.authorize(
                    caller.grants, caller.who, caller.account, request, policy
                )
            except TooMuchMatching:
                return (
                    f"User: {caller.arn} is not authorized to perform: {action}, because its"
                    " policies are too long to be decided on. Shorten their patterns."
                )
            note(decision)
            if not decision.is_allowed:
                return explain_denial(
                    caller.arn, replace(request, resource=permission.name), decision
                )
        return None


def is_unlimited(caller: Caller) -> bool:
    """True if no policy of the caller limits its calls in its account."""
    return caller.grants.is_root and caller.grants.session is None
