"""Users."""

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    already_exists,
    build_page,
    delete_conflict,
    limit_exceeded,
    no_such_entity,
    parse_tags,
    validation_failed,
)
from hostelry.api.iam.policy import check_attachable
from hostelry.api.iam.principal_kind import (
    PrincipalKind,
    check_without_policies,
    describe_details,
)
from hostelry.api.record_kind import RecordKind
from hostelry.base.ids import new_iam_id
from hostelry.domain.principal import User
from hostelry.principals.caller import CallerKind
from hostelry.store.records import Versioned

MAX_USERS = 5000
ROOT = "root"  # the name in answers about an account's root
USERS = PrincipalKind[User](
    word="User",
    records=RecordKind(
        records=lambda state: state.users,
        not_found=lambda _, name: no_such_entity(f"The user with name {name} cannot be found."),
        record_name=lambda user: user.name.lower(),
        is_account_wide=True,
    ),
    max_inline_characters=2048,
)


def create_user(context: CallContext, params: Params) -> Result:
    """CreateUser. The user has no keys yet."""
    name, boundary = params["UserName"], params.get("PermissionsBoundary")
    if boundary:
        check_attachable(context, boundary)
    _check_name(context, name)
    if len(USERS.records.all(context)) >= MAX_USERS:
        raise limit_exceeded(f"Cannot exceed quota for UsersPerAccount: {MAX_USERS}")
    user = User(
        account=context.scope.account,
        name=name,
        id=new_iam_id("AIDA"),
        created_at=context.now,
        path=params.get("Path") or "/",
        boundary=boundary,
        tags=parse_tags(params.get("Tags")),
    )
    return {"User": _describe_user(USERS.records.put(context, user))}


def _check_name(context: CallContext, name: str) -> None:
    if USERS.records.get(context, name.lower()) is not None:
        raise already_exists(f"User with name {name} already exists.")


def get_user(context: CallContext, params: Params) -> Result:
    """GetUser. Without a name, the caller."""
    name = params.get("UserName")
    if name is None and is_root(context):
        return {"User": _describe_root(context)}
    return {"User": _describe_user(find_user(context, name).value)}


def _describe_root(context: CallContext) -> Result:
    """The root of the caller's account. The first account is as old as its execution role."""
    account = context.scope.account
    record = context.state.accounts.get(context.scope.account_wide, account)
    role = context.state.roles.get(context.scope.account_wide, context.role_name.lower())
    made = record or role
    return {
        "Path": "/",
        "UserName": ROOT,
        "UserId": account,
        "Arn": f"arn:aws:iam::{account}:root",
        "CreateDate": made.value.created_at if made else context.now,
    }


def is_root(context: CallContext) -> bool:
    """True if the root of the account calls, or the platform itself."""
    return context.caller is None or context.caller.kind is CallerKind.ROOT


def find_user(context: CallContext, name: str | None) -> Versioned[User]:
    """The named user, or the caller if no name is given. Raises ValidationError, NoSuchEntity."""
    if name is not None:
        return USERS.find(context, name)
    if context.caller is None or context.caller.kind is not CallerKind.USER:
        raise validation_failed("Must specify userName when calling with non-User credentials")
    return USERS.find(context, context.caller.name)


def list_users(context: CallContext, params: Params) -> Result:
    """ListUsers. Only GetUser shows tags and the boundary."""
    prefix = params.get("PathPrefix") or "/"
    users = [it for it in USERS.records.values(context) if it.path.startswith(prefix)]
    page, members = build_page(params, [(it.name, _describe_user(it, listed=True)) for it in users])
    return {"Users": page, **members}


def update_user(context: CallContext, params: Params) -> Result:
    """UpdateUser: changes the name or the path. Sessions end with the old name."""
    stored = USERS.find(context, params["UserName"])
    old, name = stored.value, params.get("NewUserName") or stored.value.name
    renamed = replace(old, name=name, path=params.get("NewPath") or old.path)
    if name.lower() == old.name.lower():
        USERS.records.put(context, renamed, stored)
        return {}
    _check_name(context, name)
    records, scope = context.state.users, context.scope.account_wide
    context.state.store.write_all(
        [
            records.write(scope, old.name.lower(), None, expect=stored.version),
            records.write(scope, name.lower(), renamed, expect=None),
        ]
    )
    return {}


def delete_user(context: CallContext, params: Params) -> Result:
    """DeleteUser, with its sessions. Raises DeleteConflict while the user has keys or policies."""
    stored = USERS.find(context, params["UserName"])
    if stored.value.access_keys:
        raise delete_conflict("Cannot delete entity, must delete access keys first.")
    if stored.value.openai_keys:
        raise delete_conflict(
            "Cannot delete entity, must delete service specific credentials first."
        )
    check_without_policies(stored.value)
    USERS.records.delete(context, stored)
    return {}


def list_groups_for_user(context: CallContext, params: Params) -> Result:
    """ListGroupsForUser: empty, because groups are not served. Terraform asks before a delete."""
    rows: list[tuple[str, Result]] = []
    USERS.find(context, params["UserName"])
    page, members = build_page(params, rows)
    return {"Groups": page, **members}


def _describe_user(user: User, *, listed: bool = False) -> Result:
    """The user in AWS's form."""
    shown: Result = {
        "Path": user.path,
        "UserName": user.name,
        "UserId": user.id,
        "Arn": user.arn,
        "CreateDate": user.created_at,
    }
    return shown if listed else shown | describe_details(user)


OPERATIONS = {
    "CreateUser": create_user,
    "GetUser": get_user,
    "ListUsers": list_users,
    "UpdateUser": update_user,
    "DeleteUser": delete_user,
    "ListGroupsForUser": list_groups_for_user,
    **USERS.operations(),
}
