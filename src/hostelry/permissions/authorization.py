"""May a caller do this? AWS's logic over all policies that apply to one call.

An explicit deny in any policy wins. Within an account, the call needs an allow of an identity
policy, which a permissions boundary and session policies limit, or an allow of the resource's
policy. To a resource of another account, both accounts have to allow it.

An allow of the resource's policy in the caller's own account

- is not limited if it names all principals, the user, the session or a service,
- is limited by boundary and session policies if it names the role of the session,
- leaves the decision to the identity policies if it names the account.

Sources: IAM user guide, pages reference_policies_evaluation-logic,
reference_policies_evaluation-logic-cross-account and troubleshoot_access-denied.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from hostelry.permissions.evaluation import (
    AccessRequest,
    Outcome,
    Policy,
    StatementMatch,
    StatementMatches,
    find_matches,
)
from hostelry.permissions.statement import ALL_PRINCIPALS, StatementTest, is_account
from hostelry.permissions.wildcard import MatchWork


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """All policies that a principal has: identity policies, boundary, session policies.

    The root of an account is held to session policies only. `keys` are the keys of the context
    that its policies read, in lower case.
    """

    identity: tuple[Policy, ...] = ()
    boundary: tuple[Policy, ...] | None = None  # None: no boundary
    session: tuple[Policy, ...] | None = None  # None: no session policy
    is_root: bool = False
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Collect the keys once."""
        policies = (*self.identity, *(self.boundary or ()), *(self.session or ()))
        msgspec.structs.force_setattr(self, "keys", tuple(sorted(list_keys(policies))))


class ResourcePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a resource, and the account that owns the resource.

    If `is_decisive`, no call is allowed unless this policy allows it, in the same account too. KMS
    keys and roles (trust policies) are such resources.
    """

    account: str
    policy: Policy | None  # None: it has none
    is_decisive: bool = False


class Reason(Enum):
    """Why a call is allowed or not. Denials are in the words of AWS's errors."""

    ROOT = "the root of an account may do everything in it"
    IDENTITY_ALLOWS = "allowed by an identity-based policy"
    RESOURCE_ALLOWS = "allowed by a resource-based policy"
    IDENTITY_DENIES = "with an explicit deny in an identity-based policy"
    BOUNDARY_DENIES = "with an explicit deny in a permissions boundary"
    SESSION_DENIES = "with an explicit deny in a session policy"
    RESOURCE_DENIES = "with an explicit deny in a resource-based policy"
    IDENTITY_LACKS = "because no identity-based policy allows the {action} action"
    BOUNDARY_LACKS = "because no permissions boundary allows the {action} action"
    SESSION_LACKS = "because no session policy allows the {action} action"
    RESOURCE_LACKS = "because no resource-based policy allows the {action} action"


OTHERS_KEY = (
    "because the resource does not exist in this Region, no resource-based policies allow access,"
    " or a resource-based policy explicitly denies access"
)
"""The reason for a KMS key of another account, which does not show whether the key exists."""


class DecidingStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement that decides: its policy, its Sid, and its place in the policy from 0."""

    policy_id: str
    policy_type: str
    sid: str
    index: int


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, why, and the statement that decides. No statement decides an implicit deny.

    `matched` are all policies whose statements led to the outcome, `missing` the keys that policies
    read and the context lacks. Without a boundary there is no `within_boundary`.
    """

    outcome: Outcome
    reason: Reason
    statement: DecidingStatement | None = None
    matched: tuple[Policy, ...] = ()
    missing: tuple[str, ...] = ()
    within_boundary: bool | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the call may be carried out."""
        return self.outcome is Outcome.ALLOWED


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """The statements that apply, by the kind of their policy. None without such policies."""

    identity: StatementMatches
    boundary: StatementMatches | None
    session: StatementMatches | None
    resource: StatementMatches
    is_root: bool

    @property
    def grants(self) -> bool:
        """Whether the caller's account grants the call, before boundary and session limit it."""
        return self.is_root or bool(self.identity.allowed)


class _Granted(msgspec.Struct, frozen=True, kw_only=True):
    """What the resource's policy allows, by the principal that it names. None: nothing."""

    directly: StatementMatch | None = None
    by_role: StatementMatch | None = None
    by_account: StatementMatch | None = None


NO_MATCHES, NOTHING = StatementMatches(), _Granted()


def authorize(
    grants: Grants,
    who: frozenset[str],
    account: str,
    request: AccessRequest,
    resource: ResourcePolicy | None = None,
    work: MatchWork | None = None,
) -> Authorization:
    """Decide one call by all policies that apply. Raises TooMuchMatching.

    Args:
        grants: the caller's policies.
        who: the caller's names, each as ``TYPE:NAME``: of a user its ARN, of a session the ARNs of
            the session and its role, ``Service:NAME`` of a service. The account is added to ARNs.
        account: the caller's account. A service has none, and takes the account of the resource.
        request: the action, the resource and the keys of the context in lower case.
        resource: the policy of the resource. None if it has none and is in the caller's account.
        work: limits several decisions together.
    """
    test = StatementTest(request.action, request.resource, request.context, work or MatchWork())
    if resource is None or resource.policy is None:
        found, granted = _find(grants, test), NOTHING
    else:
        names = _add_groups(who, account)
        found = _find(grants, test, find_matches([resource.policy], test, names))
        granted = _sort_grants(found, names)
    reason, deciding = _find_denial(found) or _decide(found, granted, account, resource)
    boundary = found.boundary
    within = None if boundary is None else bool(boundary.allowed and not boundary.denied)
    return Authorization(
        outcome=_get_outcome(reason),
        reason=reason,
        statement=_describe(deciding[0]) if deciding else None,
        matched=_list_policies(deciding),
        missing=tuple(sorted(test.missing)),
        within_boundary=within,
    )


def explain_denial(caller_arn: str, request: AccessRequest, decision: Authorization) -> str:
    """The text of AWS's AccessDenied for a decision that is not an allow."""
    resource = "" if request.resource == "*" else f" on resource: {request.resource}"
    reason = decision.reason.value.format(action=request.action)
    if decision.reason in (Reason.RESOURCE_LACKS, Reason.RESOURCE_DENIES) and _is_others_key(
        caller_arn, request.resource
    ):
        reason = OTHERS_KEY
    if request.action.lower().startswith("sts:assumerole"):
        reason = reason.replace("no resource-based policy", "no role trust policy")
        reason = reason.replace("a resource-based policy", "the role trust policy")
    return f"User: {caller_arn} is not authorized to perform: {request.action}{resource} {reason}"


def _is_others_key(caller_arn: str, resource: str) -> bool:
    own, named = caller_arn.split(":"), resource.split(":")
    return len(named) > 5 and len(own) > 5 and named[2] == "kms" and named[4] != own[4]


def list_keys(policies: Iterable[Policy]) -> frozenset[str]:
    """The keys of the context that policies read, in lower case."""
    statements = (it for policy in policies for it in policy.statements)
    return frozenset().union(*(it.keys for it in statements))


def _find(grants: Grants, test: StatementTest, resource: StatementMatches = NO_MATCHES) -> _Found:
    boundary, session = None if grants.is_root else grants.boundary, grants.session
    return _Found(
        identity=find_matches(() if grants.is_root else grants.identity, test),
        boundary=None if boundary is None else find_matches(boundary, test),
        session=None if session is None else find_matches(session, test),
        resource=resource,
        is_root=grants.is_root,
    )


def _add_groups(who: frozenset[str], account: str) -> frozenset[str]:
    """`who` with the names that the caller shares with others."""
    if not any(it.startswith("AWS:") for it in who):
        return who | {ALL_PRINCIPALS}
    return who | {ALL_PRINCIPALS, f"AWS:{account}", f"AWS:arn:aws:iam::{account}:root"}


_Decided = tuple[Reason, tuple[StatementMatch, ...]]


def _find_denial(found: _Found) -> _Decided | None:
    """The first kind of policy with an explicit deny."""
    kinds = (
        (found.identity, Reason.IDENTITY_DENIES),
        (found.boundary, Reason.BOUNDARY_DENIES),
        (found.session, Reason.SESSION_DENIES),
        (found.resource, Reason.RESOURCE_DENIES),
    )
    for matches, reason in kinds:
        if matches is not None and matches.denied:
            return reason, matches.denied
    return None


def _sort_grants(found: _Found, names: frozenset[str]) -> _Granted:
    """The allows of the resource's policy by the principal that they name."""
    accounts = {it for it in names if is_account(it)}
    is_session = any(":sts::" in it for it in names)
    roles = {it for it in names - accounts if is_session and ":iam::" in it}
    if found.is_root:  # a session of the root is held to its session policies
        accounts, roles = set(), accounts if found.session is not None else set()
    direct = names - accounts - roles
    by_name: dict[str, StatementMatch] = {}
    for match in reversed(found.resource.allowed):
        principals = match.statement.principals
        if principals is None or principals.excludes:
            by_name[ALL_PRINCIPALS] = match
        else:
            by_name.update(dict.fromkeys(principals.names, match))

    def find_first(wanted: Iterable[str]) -> StatementMatch | None:
        allowing = [by_name[it] for it in wanted if it in by_name]
        return min(allowing, key=lambda it: it.index) if allowing else None

    return _Granted(
        directly=find_first(direct), by_role=find_first(roles), by_account=find_first(accounts)
    )


def _decide(
    found: _Found, granted: _Granted, account: str, resource: ResourcePolicy | None
) -> _Decided:
    """The decision unless a policy denies explicitly."""
    if resource is not None and resource.account != account:
        return _decide_across(found)
    if granted.directly is not None:
        return Reason.RESOURCE_ALLOWS, (granted.directly,)
    is_decisive = resource is not None and resource.is_decisive
    if is_decisive and granted.by_role is None and granted.by_account is None:
        return Reason.RESOURCE_LACKS, ()
    lacks = _find_limit(found, is_granted=found.grants or granted.by_role is not None)
    if lacks is not None:
        return lacks, ()
    if found.is_root:
        return Reason.ROOT, ()
    if granted.by_role is not None and not found.grants:
        return Reason.RESOURCE_ALLOWS, (granted.by_role,)
    return Reason.IDENTITY_ALLOWS, found.identity.allowed


def _decide_across(found: _Found) -> _Decided:
    """The decision on a resource of another account, which both accounts have to allow."""
    lacks = _find_limit(found, is_granted=found.grants)
    if lacks is not None:
        return lacks, ()
    allowed = found.resource.allowed
    return (Reason.RESOURCE_ALLOWS, allowed) if allowed else (Reason.RESOURCE_LACKS, ())


def _find_limit(found: _Found, *, is_granted: bool) -> Reason | None:
    """The first kind of policy in the caller's account without a needed allow."""
    if not is_granted:
        return Reason.IDENTITY_LACKS
    if found.boundary is not None and not found.boundary.allowed:
        return Reason.BOUNDARY_LACKS
    if found.session is not None and not found.session.allowed:
        return Reason.SESSION_LACKS
    return None


def _get_outcome(reason: Reason) -> Outcome:
    if reason in (Reason.ROOT, Reason.IDENTITY_ALLOWS, Reason.RESOURCE_ALLOWS):
        return Outcome.ALLOWED
    denies = reason.name.endswith("_DENIES")
    return Outcome.EXPLICIT_DENY if denies else Outcome.IMPLICIT_DENY


def _describe(match: StatementMatch) -> DecidingStatement:
    policy = match.policy
    sid = match.statement.sid
    return DecidingStatement(
        policy_id=policy.id, policy_type=policy.type, sid=sid, index=match.index
    )


def _list_policies(matches: Iterable[StatementMatch]) -> tuple[Policy, ...]:
    """The policies of matches, each once, in their order."""
    return tuple({id(it.policy): it.policy for it in matches}.values())
