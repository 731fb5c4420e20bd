"""STS: the identity of callers, and temporary keys by AssumeRole and GetSessionToken.

Session policies are refused, because policies are not enforced. MFA is refused, too.
"""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import ROLE_ID
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_temporary_key_id
from hostelry.domain.role import Role, assumed_role_arn, parse_role_name
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import trusts

SESSION_NAME = "hostelry"
DEFAULT_ROLE_SESSION_S = 3600
MAX_CHAINED_S = 3600
DEFAULT_SESSION_S = 43_200
UNSUPPORTED = {
    "Policy": "no call is held to policies, so a session policy would limit nothing",
    "PolicyArns": "no call is held to policies, so a session policy would limit nothing",
    "SerialNumber": "there are no MFA devices",
    "TokenCode": "there are no MFA devices",
    "ProvidedContexts": "there is no identity provider",
}


def get_caller_identity(context: CallContext, _: Params) -> Result:
    """GetCallerIdentity. A caller without a session in another role acts in the execution role.

    `sagemaker.get_execution_role()` needs an assumed-role identity, whose role it then looks up.
    """
    account, session = context.scope.account, context.session
    if session is None or not session.role_name:
        role_id, role_name, session_name = ROLE_ID, context.role_name, SESSION_NAME
    else:
        role_id, role_name = session.role_id, session.role_name
        session_name = session.session_name
    return {
        "UserId": f"{role_id}:{session_name}",
        "Account": account,
        "Arn": assumed_role_arn(account, role_name, session_name),
    }


def assume_role(context: CallContext, params: Params) -> Result:
    """AssumeRole: keys for a session in a role that the caller may assume."""
    _refuse_unsupported(params)
    role = _find_assumable_role(context, params)
    duration_s = _session_length_s(context, role, params.get("DurationSeconds"))
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
        "Credentials": _issue(context, session),
        "AssumedRoleUser": {
            "AssumedRoleId": f"{role.id}:{name}",
            "Arn": assumed_role_arn(role.account, role.name, name),
        },
        **echoed,
    }


def get_session_token(context: CallContext, params: Params) -> Result:
    """GetSessionToken: keys of the account. A caller with a session is refused."""
    _refuse_unsupported(params)
    if context.session is not None:
        raise ServiceError(
            "AccessDenied", "Cannot call GetSessionToken with session credentials", 403
        )
    session = Session(
        access_key_id=new_temporary_key_id(),
        account_id=context.scope.account,
        expires_at=int(context.now) + (params.get("DurationSeconds") or DEFAULT_SESSION_S),
    )
    return {"Credentials": _issue(context, session)}


def _issue(context: CallContext, session: Session) -> Result:
    keys = context.issue_keys(session)
    return {
        "AccessKeyId": keys.access_key_id,
        "SecretAccessKey": keys.secret_access_key,
        "SessionToken": keys.session_token,
        "Expiration": keys.expires_at,
    }


def _find_assumable_role(context: CallContext, params: Params) -> Role:
    """The role of the request. Raises AccessDenied unless it trusts the caller."""
    arn = params["RoleArn"]
    stored = context.state.roles.get(context.scope.account_wide, parse_role_name(arn).lower())
    caller = str(get_caller_identity(context, {})["Arn"])
    if (
        stored is None
        or stored.value.arn != arn
        or not _trusts_caller(context, stored.value, caller, params)
    ):
        raise ServiceError(
            "AccessDenied",
            f"User: {caller} is not authorized to perform: sts:AssumeRole on resource: {arn}",
            403,
        )
    return stored.value


def _trusts_caller(context: CallContext, role: Role, caller: str, params: Params) -> bool:
    """True if the role's trust policy lets the caller assume it."""
    account, callers_role = role.account, _get_callers_role(context)
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
    statements = parse_statements(role.trust_policy, DocumentKind.TRUST)
    return trusts(statements, frozenset(f"AWS:{it}" for it in names), keys)


def _get_callers_role(context: CallContext) -> str:
    session = context.session
    if session is None or not session.role_name:
        return context.role_arn
    stored = context.state.roles.get(context.scope.account_wide, session.role_name.lower())
    return stored.value.arn if stored else ""


def _session_length_s(context: CallContext, role: Role, asked_s: int | None) -> int:
    """The length of the session. Raises ValidationError if the role does not allow it."""
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
    """Raise UnrecognizedClientException if the role of the caller's session was deleted."""
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


def _refuse_unsupported(params: Params) -> None:
    for name, reason in UNSUPPORTED.items():
        if params.get(name) is not None:
            raise ServiceError("ValidationError", f"{name} is not supported by Hostelry: {reason}.")
