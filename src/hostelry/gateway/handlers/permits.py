"""Holds invocations to the policies of their callers."""

from collections.abc import Callable, Mapping
from functools import partial

from hostelry.base.errors import ServiceError
from hostelry.dataplane.http.exchange import Exchange
from hostelry.domain.scope import Scope
from hostelry.permissions.authorization import ResourcePolicy
from hostelry.permissions.document import DocumentKind
from hostelry.permissions.needs.invocation import InvokedTarget, needed_for_invocation
from hostelry.principals.caller import Caller, parse_policy, request_keys
from hostelry.principals.decisions import Decisions, is_unlimited
from hostelry.principals.source import PrincipalSource
from hostelry.principals.table import PolicyRow, PrincipalTable


class Permits:
    """Decides whether callers may invoke endpoints and components.

    Args:
        source: the endpoints' policies and tags.
        now: seconds since the epoch.
        is_secure: whether clients of other machines come by TLS.
    """

    def __init__(
        self, source: PrincipalSource, now: Callable[[], float], *, is_secure: bool = False
    ) -> None:
        self._source = source
        self._decisions = Decisions()
        self._now = now
        self._is_secure = is_secure

    def check(
        self,
        caller: Caller,
        exchange: Exchange,
        scope: Scope,
        operation: str,
        target: InvokedTarget,
    ) -> None:
        """Raise AccessDeniedException (403) unless the caller may invoke the target."""
        refusal = self.find_refusal(caller, exchange, scope, operation, target)
        if refusal is not None:
            raise ServiceError("AccessDeniedException", refusal, 403)

    def find_refusal(
        self,
        caller: Caller,
        exchange: Exchange,
        scope: Scope,
        operation: str,
        target: InvokedTarget,
    ) -> str | None:
        """Why the caller may not invoke the target, in AWS's words. None if it may."""
        table = self._source.principals.table
        own_arn = scope.arn("endpoint", target.endpoint)
        document = table.endpoint_policies.get(own_arn)
        if is_unlimited(caller) and document is None:
            return None
        keys = request_keys(
            now=self._now(),
            region=scope.region,
            source_ip=exchange.address,
            user_agent=exchange.request.headers.get("user-agent", ""),
            is_secure=self._is_secure,
        )
        owned = None
        if document is not None:
            row = PolicyRow(id=own_arn, type="resource", document=document)
            policy = parse_policy(row, DocumentKind.RESOURCE)
            owned = ResourcePolicy(account=scope.account, policy=policy)
        needed = needed_for_invocation(operation, target, scope, partial(_find_tags, table))
        return self._decisions.find_refusal(
            caller,
            needed,
            keys,
            lambda arn: owned if arn == own_arn else None,
            exchange.note_decision,
        )


def _find_tags(table: PrincipalTable, arn: str) -> Mapping[str, str]:
    return table.tags.get(arn, {})
