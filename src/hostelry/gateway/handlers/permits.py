"""Holds invocations to the policies of their callers."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.dataplane.http.exchange import Exchange
from hostelry.domain.scope import Scope
from hostelry.permissions.authorization import Authorization, ResourcePolicy, list_keys
from hostelry.permissions.document import DocumentKind
from hostelry.permissions.needs.invocation import InvokedTarget, needed_for_invocation
from hostelry.principals.caller import CHANGING_KEYS, Caller, parse_policy, request_keys
from hostelry.principals.decisions import Decisions, is_unlimited
from hostelry.principals.source import PrincipalSource
from hostelry.principals.table import PolicyRow, PrincipalTable

MAX_KEPT = 10_000


class KeptPermit(msgspec.Struct, frozen=True):
    """A call that was allowed by policies which read nothing of the single request."""

    caller: Caller
    table: PrincipalTable
    decisions: tuple[Authorization, ...]


class Permits:
    """Decides whether callers may invoke endpoints and components.

    A call of the same key to the same target is not decided on again while the principals are the
    same, unless a policy reads the time, the address or another part of the request.

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
        self._kept: dict[tuple[str, Scope, str, InvokedTarget], KeptPermit] = {}
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
        kept_as = (caller.access_key_id, scope, operation, target)
        kept = self._kept.get(kept_as)
        if kept is not None and kept.caller is caller and kept.table is table:
            for decision in kept.decisions:
                exchange.note_decision(decision)
            return None
        owned = None if document is None else _parse_owned(own_arn, document, scope)
        keys = request_keys(
            now=self._now(),
            region=scope.region,
            source_ip=exchange.address,
            user_agent=exchange.request.headers.get("user-agent", ""),
            is_secure=self._is_secure,
        )
        decisions: list[Authorization] = []
        refusal = self._decisions.find_refusal(
            caller,
            needed_for_invocation(operation, target, scope, partial(_find_tags, table)),
            keys,
            lambda arn: owned if arn == own_arn else None,
            decisions.append,
        )
        for decision in decisions:
            exchange.note_decision(decision)
        policies = () if owned is None or owned.policy is None else (owned.policy,)
        if refusal is None and CHANGING_KEYS.isdisjoint(
            (*caller.grants.keys, *list_keys(policies))
        ):
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[kept_as] = KeptPermit(caller, table, tuple(decisions))
        return refusal


def _parse_owned(arn: str, document: str, scope: Scope) -> ResourcePolicy:
    row = PolicyRow(id=arn, type="resource", document=document)
    return ResourcePolicy(account=scope.account, policy=parse_policy(row, DocumentKind.RESOURCE))


def _list_policy_keys(owned: ResourcePolicy | None) -> frozenset[str]:
    return list_keys(() if owned is None or owned.policy is None else (owned.policy,))


def _find_tags(table: PrincipalTable, arn: str) -> Mapping[str, str]:
    return table.tags.get(arn, {})
