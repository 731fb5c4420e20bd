"""AssumeRole and GetSessionToken: keys that end by themselves.

Session policies and MFA are refused: no call is held to a policy, and there are no MFA devices.
"""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sts.caller_identity import get_caller_identity
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_temporary_key_id
from hostelry.domain.role import Role, assumed_role_arn, role_name_of
from hostelry.permissions.document import DocumentKind, statements_of
from hostelry.permissions.evaluation import trusts

DEFAULT_ROLE_SESSION_S = 3600
MAX_CHAINED_S = 3600
DEFAULT_SESSION_S = 43_200
REFUSED = {
    "Policy": "no call is held to policies, so a session policy would limit nothing",
    "PolicyArns": "no call is held to policies, so a session policy would limit nothing",
    "SerialNumber": "there are no MFA devices",
    "TokenCode": "there are no MFA devices",
    "ProvidedContexts": "there is no identity provider",
}


def assume_role(context: CallContext, params: Params) -> Result:
    """AssumeRole: keys for a session in a role whose trust policy lets the caller assume it."""
    refuse(params)
    role = assumable_role(context, params)
    duration_s = session_length_s(context, role, params.get("DurationSeconds"))
    name = params["RoleSessionName"]
    session = Session(
        access_key_id=new_temporary_key_id(),
        account_id=role.account,
        expires_at=int(context.now) + duration_s,
        role_name=role.name,
        role_id=role.id,
        session_name=name,
    )
    echoed = {k: params[k] for k in ("SourceIdentity",) if params.get(k) is not None}
    return {
        "Credentials": issued(context, session),
        "AssumedRoleUser": {
            "AssumedRoleId": f"{role.id}:{name}",
            "Arn": assumed_role_arn(role.account, role.name, name),
        },
        **echoed,
    }


def get_session_token(context: CallContext, params: Params) -> Result:
    """GetSessionToken: keys of the account; who has a session already gets none."""
    refuse(params)
    if context.session is not None:
        raise ServiceError(
            "AccessDenied", "Cannot call GetSessionToken with session credentials", 403
        )
    session = Session(
        access_key_id=new_temporary_key_id(),
        account_id=context.scope.account,
        expires_at=int(context.now) + (params.get("DurationSeconds") or DEFAULT_SESSION_S),
    )
    return {"Credentials": issued(context, session)}


def issued(context: CallContext, session: Session) -> Result:
    """New keys in AWS's form."""
    keys = context.issue_keys(session)
    return {
        "AccessKeyId": keys.access_key_id,
        "SecretAccessKey": keys.secret_access_key,
        "SessionToken": keys.session_token,
        "Expiration": keys.expires_at,
    }


def assumable_role(context: CallContext, params: Params) -> Role:
    """The role of the request; raises AccessDenied where it is not there or does not trust."""
    arn = params["RoleArn"]
    stored = context.state.roles.get(context.scope.account_wide, role_name_of(arn).lower())
    caller = str(get_caller_identity(context, {})["Arn"])
    if (
        stored is None
        or stored.value.arn != arn
        or not trusts_caller(context, stored.value, caller, params)
    ):
        raise ServiceError(
            "AccessDenied",
            f"User: {caller} is not authorized to perform: sts:AssumeRole on resource: {arn}",
            403,
        )
    return stored.value


def trusts_caller(context: CallContext, role: Role, caller: str, params: Params) -> bool:
    """Whether the role's trust policy lets the caller, a session of its account, assume it."""
    account, callers_role = role.account, role_of_caller(context)
    names = ("*", account, f"arn:aws:iam::{account}:root", callers_role, caller)
    keys = {
        "aws:principalarn": (callers_role,),
        "aws:principalaccount": (account,),
        "aws:principaltype": ("AssumedRole",),
        "sts:rolesessionname": (params["RoleSessionName"],),
    }
    for member, key in (("ExternalId", "sts:externalid"), ("SourceIdentity", "sts:sourceidentity")):
        if params.get(member):
            keys[key] = (params[member],)
    statements = statements_of(role.trust_policy, DocumentKind.TRUST)
    return trusts(statements, frozenset(f"AWS:{it}" for it in names), keys)


def role_of_caller(context: CallContext) -> str:
    """The ARN of the role that the caller acts in."""
    session = context.session
    if session is None or not session.role_name:
        return context.role_arn
    stored = context.state.roles.get(context.scope.account_wide, session.role_name.lower())
    return stored.value.arn if stored else ""


def session_length_s(context: CallContext, role: Role, asked_s: int | None) -> int:
    """How long the session lasts; raises ValidationError for more than the role allows."""
    chained = context.session is not None and bool(context.session.role_name)
    if chained and (asked_s or 0) > MAX_CHAINED_S:
        raise ServiceError(
            "ValidationError",
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by"
            " role chaining",
        )
    if (asked_s or 0) > role.max_session_s:
        raise ServiceError(
            "ValidationError",
            "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.",
        )
    return asked_s or DEFAULT_ROLE_SESSION_S


def check_session(context: CallContext) -> None:
    """Raise where the caller's session is one in a role that was deleted meanwhile."""
    session = context.session
    if session is None or not session.role_name:
        return
    stored = context.state.roles.get(context.scope.account_wide, session.role_name.lower())
    if stored is None or stored.value.id != session.role_id:
        raise ServiceError(
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
            403,
        )


def refuse(params: Params) -> None:
    """Raise for a member that would change what a session may do, and is not supported."""
    for name, reason in REFUSED.items():
        if params.get(name) is not None:
            raise ServiceError("ValidationError", f"{name} is not supported by Hostelry: {reason}.")
