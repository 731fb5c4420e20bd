"""Sessions in roles: the role's trust, and the policies, tags and source identity of a session.

The role's trust policy and the caller's own policies decide together, for roles of every account of
the platform.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import parse_document, validation_failed
from hostelry.api.iam.policy import get_policy_at
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_temporary_key_id
from hostelry.domain.role import Role, assumed_role_arn, parse_role_name
from hostelry.domain.scope import ALL_REGIONS, Scope
from hostelry.permissions.authorization import (
    Grants,
    ResourcePolicy,
    authorize,
    explain_denial,
)
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy, trusts
from hostelry.permissions.needs.needed import build_resource_keys

DEFAULT_ROLE_SESSION_S = 3600
MAX_CHAINED_S = 3600
MAX_POLICY_CHARACTERS = 2048
MAX_POLICY_ARNS = 10
# Of policies and tags as JSON. A session token has at most 8,192 characters.
MAX_PACKED_BYTES = 4096
Keys = Mapping[str, Sequence[str]]


class SessionClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The policies, tags and source identity of a session. `transitive` are keys of `tags`."""

    policies: tuple[str, ...] = ()
    policy_arns: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    transitive: tuple[str, ...] = ()
    source_identity: str = ""

    @property
    def packed_percent(self) -> int:
        """The size of policies and tags, in percent of the allowed size."""
        if not (self.policies or self.policy_arns or self.tags):
            return 0
        packed = msgspec.json.encode((self.policies, self.policy_arns, self.tags))
        return math.ceil(100 * len(packed) / MAX_PACKED_BYTES)


class TrustedParty(msgspec.Struct, frozen=True, kw_only=True):
    """The party that begins a session in a role.

    `who` are its names as a principal of trust policies, and `arn` names it in errors. `keys` are
    the context keys of its request, and `action` is the action that it performs. `account` and
    `grants` are of a caller of this platform. `inherited` are the transitive tags of the session
    that it has already, and `source_identity` is the source identity of that session.
    """

    who: frozenset[str]
    arn: str
    action: str
    keys: Keys
    account: str = ""
    grants: Grants | None = None
    inherited: Mapping[str, str] = msgspec.field(default_factory=dict)
    source_identity: str = ""
    is_in_role: bool = False


def _find_role(context: CallContext, arn: str) -> Role | None:
    """The role with an ARN in any open account of the platform, or None."""
    account = arn.split(":")[4] if arn.count(":") >= 5 else ""
    stored = context.state.roles.get(Scope(account, ALL_REGIONS), parse_role_name(arn).lower())
    if stored is None or stored.value.arn != arn or _is_closed(context, account):
        return None
    return stored.value


def _is_closed(context: CallContext, account: str) -> bool:
    """True if an account is closed or does not exist."""
    if account == context.first_account:
        return False
    stored = context.state.accounts.get(Scope(account, ALL_REGIONS), account)
    return stored is None or stored.value.is_closed


def build_session_claims(
    params: Params, tags: Mapping[str, str], transitive: Sequence[str], party: TrustedParty
) -> SessionClaims:
    """The claims that a request wants for a session, checked, with the inherited tags.

    Raises MalformedPolicyDocument, PackedPolicyTooLarge or ValidationError.
    """
    policy = params.get("Policy")
    arns = tuple(it["arn"] for it in params.get("PolicyArns") or () if it.get("arn"))
    _check_length("policy", len(policy or ""), MAX_POLICY_CHARACTERS)
    _check_length("policyArns", len(arns), MAX_POLICY_ARNS)
    if policy is not None:
        parse_document(policy, DocumentKind.IDENTITY)
    inherited = {it.lower() for it in party.inherited}
    for key in tags:
        if key.lower() in inherited:
            raise validation_failed(f"The transitive tag {key} of the session cannot be replaced.")
    for key in transitive:
        if key not in tags:
            raise validation_failed(f"The transitive tag key {key} is not among the tags.")
    claims = SessionClaims(
        policies=() if policy is None else (policy,),
        policy_arns=arns,
        tags={**party.inherited, **tags},
        transitive=(*party.inherited, *transitive),
        source_identity=params.get("SourceIdentity") or party.source_identity,
    )
    if claims.packed_percent > 100:
        raise ServiceError(
            "PackedPolicyTooLarge",
            f"Packed size of session policies and tags consumes {claims.packed_percent} % of"
            " allotted space, please use smaller policies or fewer tags.",
        )
    return claims


def _check_length(name: str, length: int, limit: int) -> None:
    if length > limit:
        raise validation_failed(
            f"1 validation error detected: Value at '{name}' failed to satisfy constraint: Member"
            f" must have length less than or equal to {limit}"
        )


def find_trusting_role(
    context: CallContext, params: Params, party: TrustedParty, claims: SessionClaims
) -> Role:
    """The role of the request, which trusts the party. Raises AccessDenied.

    The answer does not show if the role exists.
    """
    arn = params["RoleArn"]
    role, needed = _find_role(context, arn), [party.action]
    tags = {} if role is None else role.tags
    keys = {**party.keys, **build_resource_keys(arn, tags, context.scope.account)}
    keys["sts:rolesessionname"] = (params["RoleSessionName"],)
    if set(claims.tags) - set(party.inherited):
        own = {key: it for key, it in claims.tags.items() if key not in party.inherited}
        needed.append("sts:TagSession")
        keys |= {f"aws:requesttag/{key.lower()}": (value,) for key, value in own.items()}
        keys["aws:tagkeys"] = tuple(own)
        if claims.transitive:
            keys["sts:transitivetagkeys"] = claims.transitive
    if claims.source_identity:
        needed.append("sts:SetSourceIdentity")
        keys["sts:sourceidentity"] = (claims.source_identity,)
    for action in needed:
        refusal = _find_refusal(
            context, party, AccessRequest(action=action, resource=arn, context=keys), role
        )
        if refusal is not None:
            raise ServiceError("AccessDenied", refusal, 403)
    assert role is not None, "no policy of a missing role allows anything"
    if party.source_identity not in ("", claims.source_identity):
        raise ServiceError(
            "AccessDenied", "The SourceIdentity of the caller's session cannot be changed.", 403
        )
    return role


def _find_refusal(
    context: CallContext, party: TrustedParty, request: AccessRequest, role: Role | None
) -> str | None:
    """Why the party may not perform an action on a role, in AWS's words. None if it may.

    The trust policy has to allow it. If it names the account of the party, or the role is in
    another account, the party's own policies have to allow it, too. A missing role is refused as a
    role is whose trust policy does not name the party.
    """
    statements = () if role is None else parse_statements(role.trust_policy, DocumentKind.TRUST)
    if party.grants is None:
        allowed = trusts(statements, party.who, request.context, request.action)
        return None if allowed else f"Not authorized to perform {request.action}"
    policy = Policy(id="trust-policy", type="resource", statements=statements)
    account = request.resource.split(":")[4]
    trust = ResourcePolicy(account=account, policy=policy, is_decisive=True)
    decision = authorize(party.grants, party.who, party.account, request, trust)
    context.note_decision(decision)
    return None if decision.is_allowed else explain_denial(party.arn, request, decision)


def begin_session(
    context: CallContext, params: Params, role: Role, party: TrustedParty, claims: SessionClaims
) -> Result:
    """Issue the keys of a new session in a role. Raises ValidationError for its length."""
    here = msgspec.structs.replace(context, scope=Scope(role.account, context.scope.region))
    for arn in claims.policy_arns:
        if get_policy_at(here, arn) is None:
            raise validation_failed(f"Policy {arn} does not exist or is not attachable.")
    name = params["RoleSessionName"]
    duration_s = _find_length_s(role, params.get("DurationSeconds"), chained=party.is_in_role)
    session = Session(
        access_key_id=new_temporary_key_id(role.account),
        account_id=role.account,
        expires_at=int(context.now) + duration_s,
        role_name=role.name,
        role_id=role.id,
        session_name=name,
        policies=claims.policies,
        policy_arns=claims.policy_arns,
        tags=claims.tags,
        transitive=claims.transitive,
        source_identity=claims.source_identity,
        issued_at=int(context.now),
    )
    answer: Result = {
        "Credentials": issue_keys(context, session),
        "AssumedRoleUser": {
            "AssumedRoleId": f"{role.id}:{name}",
            "Arn": assumed_role_arn(role.account, role.name, name),
        },
    }
    if claims.packed_percent:
        answer["PackedPolicySize"] = claims.packed_percent
    if claims.source_identity:
        answer["SourceIdentity"] = claims.source_identity
    return answer


def _find_length_s(role: Role, asked_s: int | None, *, chained: bool) -> int:
    if chained and (asked_s or 0) > MAX_CHAINED_S:
        raise validation_failed(
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by"
            " role chaining"
        )
    if (asked_s or 0) > role.max_session_s:
        raise validation_failed(
            "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
        )
    return asked_s or DEFAULT_ROLE_SESSION_S


def issue_keys(context: CallContext, session: Session) -> Result:
    """The keys of a session, in AWS's form."""
    keys = context.issue_keys(session)
    return {
        "AccessKeyId": keys.access_key_id,
        "SecretAccessKey": keys.secret_access_key,
        "SessionToken": keys.session_token,
        "Expiration": keys.expires_at,
    }
