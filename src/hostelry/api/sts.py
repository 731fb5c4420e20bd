"""STS: the identity of callers, and temporary keys by AssumeRole and GetSessionToken."""

from collections.abc import Sequence

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import parse_tags, validation_failed
from hostelry.api.iam.execution_role import FIRST_ROLE_ID
from hostelry.api.role_session import (
    TrustedParty,
    begin_session,
    build_session_claims,
    find_trusting_role,
    issue_keys,
)
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_temporary_key_id, read_key_account
from hostelry.domain.role import assumed_role_arn
from hostelry.domain.scope import ALL_REGIONS, Scope
from hostelry.permissions.authorization import Grants
from hostelry.principals.caller import CallerKind

ROOT_SESSION = "hostelry"
DEFAULT_SESSION_S = 43_200
UNSUPPORTED = {
    "SerialNumber": "there are no MFA devices",
    "TokenCode": "there are no MFA devices",
    "ProvidedContexts": "contexts of other providers are not known",
}


def get_caller_identity(context: CallContext, _: Params) -> Result:
    """GetCallerIdentity. The root of an account acts in its execution role.

    `sagemaker.get_execution_role()` needs an assumed-role identity, whose role it then looks up.
    """
    caller = context.caller
    if caller is not None and caller.kind is not CallerKind.ROOT:
        return {"UserId": caller.user_id, "Account": caller.account, "Arn": caller.arn}
    account, name = context.scope.account, context.role_name
    stored = context.state.roles.get(context.scope.account_wide, name.lower())
    role_id = stored.value.id if stored else FIRST_ROLE_ID
    return {
        "UserId": f"{role_id}:{ROOT_SESSION}",
        "Account": account,
        "Arn": assumed_role_arn(account, name, ROOT_SESSION),
    }


def get_access_key_info(context: CallContext, params: Params) -> Result:
    """GetAccessKeyInfo: the account of an access key id, which holds it, as on AWS."""
    key_id = params["AccessKeyId"]
    account = read_key_account(key_id) or ""
    accounts = context.state.accounts
    if account != context.first_account and not accounts.get(Scope(account, ALL_REGIONS), account):
        raise validation_failed(f"Invalid access key id {key_id}: no account here has it.")
    return {"Account": account}


def assume_role(context: CallContext, params: Params) -> Result:
    """AssumeRole: keys for a session in a role that trusts the caller, of any account here."""
    _refuse_unsupported(params)
    party = _build_party(context, params)
    transitive = params.get("TransitiveTagKeys") or ()
    claims = build_session_claims(params, parse_tags(params.get("Tags")), transitive, party)
    role = find_trusting_role(context, params, party, claims)
    return begin_session(context, params, role, party, claims)


def _build_party(context: CallContext, params: Params) -> TrustedParty:
    """The caller as the party that a role has to trust."""
    caller, account = context.caller, context.scope.account
    arn = get_caller_identity(context, {})["Arn"]
    who, grants = frozenset({f"AWS:{it}" for it in (arn, context.role_arn)}), Grants(is_root=True)
    keys: dict[str, Sequence[str]] = {
        "aws:principalarn": (context.role_arn,),
        "aws:principalaccount": (account,),
    }
    if caller is not None:
        grants = caller.grants
        keys = {**context.request_keys, **keys, **caller.keys}
        who = caller.who | who if caller.kind is CallerKind.ROOT else caller.who
    if params.get("ExternalId"):
        keys["sts:externalid"] = (params["ExternalId"],)
    party = TrustedParty(
        who=who, arn=arn, action="sts:AssumeRole", keys=keys, account=account, grants=grants
    )
    if caller is None or caller.session is None or caller.kind is not CallerKind.ROLE:
        return party
    session = caller.session
    return replace(
        party,
        inherited={key: it for key, it in session.tags.items() if key in session.transitive},
        source_identity=session.source_identity,
        is_in_role=True,
    )


def get_session_token(context: CallContext, params: Params) -> Result:
    """GetSessionToken: keys of the calling user or root. A caller with a session is refused."""
    _refuse_unsupported(params)
    if context.session is not None:
        raise ServiceError(
            "AccessDenied", "Cannot call GetSessionToken with session credentials", 403
        )
    account, caller = context.scope.account, context.caller
    user = caller if caller is not None and caller.kind is CallerKind.USER else None
    session = Session(
        access_key_id=new_temporary_key_id(account),
        account_id=account,
        expires_at=int(context.now) + (params.get("DurationSeconds") or DEFAULT_SESSION_S),
        user_name=user.name if user is not None else "",
        user_id=user.user_id if user is not None else "",
        issued_at=int(context.now),
    )
    return {"Credentials": issue_keys(context, session)}


def _refuse_unsupported(params: Params) -> None:
    for name, reason in UNSUPPORTED.items():
        if params.get(name) is not None:
            raise ServiceError("ValidationError", f"{name} is not supported by Hostelry: {reason}.")
