"""Decisions of policies on a request: an explicit deny, else an allow, else an implicit deny."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from hostelry.permissions.condition import holds
from hostelry.permissions.document import PolicyStatement
from hostelry.permissions.wildcard import Context, MatchWork, expand, mark_wildcards, matches


class Outcome(Enum):
    """What is decided, in the words of SimulatePrincipalPolicy."""

    ALLOWED = "allowed"
    EXPLICIT_DENY = "explicitDeny"
    IMPLICIT_DENY = "implicitDeny"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of one policy, and the words that a result names it by."""

    id: str
    type: str
    statements: tuple[PolicyStatement, ...]


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An action on a resource. The keys of `context` are in lower case."""

    action: str
    resource: str
    context: Context


class AccessDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, the policies whose statements led to it, and the missing context keys.

    Without a permissions boundary there is no `within_boundary`.
    """

    outcome: Outcome
    matched: tuple[Policy, ...] = ()
    missing: tuple[str, ...] = ()
    within_boundary: bool | None = None


def decide(
    policies: Sequence[Policy],
    request: AccessRequest,
    boundary: Sequence[Policy] | None = None,
    work: MatchWork | None = None,
) -> AccessDecision:
    """Decide by identity policies. A boundary has to allow the request, too.

    `work` limits several decisions together. Raises TooMuchMatching when it is used up.
    """
    missing: set[str] = set()
    work = work or MatchWork()
    outcome, matched = _outcome(policies, request, missing, work)
    within = None
    if boundary is not None:
        limited, named = _outcome(boundary, request, missing, work)
        within = limited is Outcome.ALLOWED
        if limited is Outcome.EXPLICIT_DENY:
            outcome, matched = limited, named
        elif not within and outcome is Outcome.ALLOWED:
            outcome, matched = Outcome.IMPLICIT_DENY, ()
    return AccessDecision(
        outcome=outcome,
        matched=matched,
        missing=tuple(sorted(missing)),
        within_boundary=within,
    )


def trusts(statements: Sequence[PolicyStatement], who: frozenset[str], context: Context) -> bool:
    """Whether a role's trust policy lets a principal assume it.

    `who` are the principal's names, each as ``TYPE:NAME``, for example ``AWS:111122223333``.
    """
    fitting = [it for it in statements if _is_for(it, who) and _applies_to_assume(it, context)]
    return bool(fitting) and all(it.allows for it in fitting)


def _outcome(
    policies: Sequence[Policy], request: AccessRequest, missing: set[str], work: MatchWork
) -> tuple[Outcome, tuple[Policy, ...]]:
    denied, allowed = [], []
    for policy in policies:
        fitting = [it for it in policy.statements if _fits(it, request, missing, work)]
        if any(not it.allows for it in fitting):
            denied.append(policy)
        elif fitting:
            allowed.append(policy)
    if denied:
        return Outcome.EXPLICIT_DENY, tuple(denied)
    if allowed:
        return Outcome.ALLOWED, tuple(allowed)
    return Outcome.IMPLICIT_DENY, ()


def _fits(
    statement: PolicyStatement, request: AccessRequest, missing: set[str], work: MatchWork
) -> bool:
    return (
        _is_action(statement, request.action, work)
        and _is_resource(statement, request, missing, work)
        and _conditions_hold(statement, request.context, missing, work)
    )


def _conditions_hold(
    statement: PolicyStatement, context: Context, missing: set[str], work: MatchWork
) -> bool:
    conditions = statement.conditions
    held = [holds(it, context, missing, work) for it in conditions]  # names each missing key
    return all(held)


def _is_action(statement: PolicyStatement, action: str, work: MatchWork) -> bool:
    wanted = statement.actions or statement.not_actions
    found = any(matches(mark_wildcards(it.lower()), action.lower(), work) for it in wanted)
    return found == bool(statement.actions)


def _is_resource(
    statement: PolicyStatement, request: AccessRequest, missing: set[str], work: MatchWork
) -> bool:
    wanted = statement.resources or statement.not_resources
    patterns = [expand(it, request.context, missing, work) for it in wanted]
    if None in patterns and not statement.resources:
        return False  # the excluded principals are not known
    found = any(it is not None and matches(it, request.resource, work) for it in patterns)
    return found == bool(statement.resources)


def _is_for(statement: PolicyStatement, who: frozenset[str]) -> bool:
    named = statement.principals or statement.not_principals
    found = any(f"{kind}:{name}" in who for kind, name in named)
    return found == bool(statement.principals)


def _applies_to_assume(statement: PolicyStatement, context: Context) -> bool:
    work = MatchWork()  # trust policies are short, and so are the values of their keys
    return _is_action(statement, "sts:AssumeRole", work) and _conditions_hold(
        statement, context, set(), work
    )
