"""Roles: CreateRole, GetRole, ListRoles, UpdateRole, UpdateAssumeRolePolicy and DeleteRole."""

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.policy import check_attachable
from hostelry.api.iam.refusals import (
    already_exists,
    checked_document,
    delete_conflict,
    document_size,
    limit_exceeded,
    no_such_entity,
    unmodifiable,
    validation,
)
from hostelry.api.iam.tag import tag_members, tags_of
from hostelry.api.refusals import refuse_fields
from hostelry.base.ids import new_iam_id
from hostelry.domain.role import SERVICE_LINKED_PATH, Role
from hostelry.permissions.document import DocumentKind
from hostelry.store.records import Versioned

MAX_ROLES = 1000
MAX_TRUST_CHARACTERS = 2048
DEFAULT_SESSION_S = 3600
SIGN_IN_FIELDS = ("MaxSigninSessionDuration", "ResetMaxSigninSessionDuration")


def create_role(context: CallContext, params: Params) -> Result:
    """CreateRole."""
    refuse_fields(params, SIGN_IN_FIELDS)
    name, path = params["RoleName"], params.get("Path") or "/"
    check_trust(params["AssumeRolePolicyDocument"])
    if path.startswith(SERVICE_LINKED_PATH):
        raise validation(
            f"Roles with the path {SERVICE_LINKED_PATH} are made by CreateServiceLinkedRole only."
        )
    boundary = params.get("PermissionsBoundary")
    if boundary:
        check_attachable(context, boundary)
    role = Role(
        account=context.scope.account,
        name=name,
        id=new_iam_id("AROA"),
        trust_policy=params["AssumeRolePolicyDocument"],
        created_at=context.now,
        path=path,
        description=params.get("Description"),
        max_session_s=params.get("MaxSessionDuration") or DEFAULT_SESSION_S,
        boundary=boundary,
        tags=tags_of(params.get("Tags")),
    )
    return {"Role": described(add_role(context, role))}


def add_role(context: CallContext, role: Role) -> Role:
    """Store a new role; raises EntityAlreadyExists."""
    roles, scope = context.state.roles, context.scope.account_wide
    if roles.get(scope, role.name.lower()) is not None:
        raise already_exists(f"Role with name {role.name} already exists.")
    if len(roles.list(scope)) >= MAX_ROLES:
        raise limit_exceeded(f"Cannot exceed quota for RolesPerAccount: {MAX_ROLES}")
    return roles.put(scope, role.name.lower(), role, expect=None).value


def get_role(context: CallContext, params: Params) -> Result:
    """GetRole."""
    return {"Role": described(found_role(context, params["RoleName"]).value)}


def list_roles(context: CallContext, params: Params) -> Result:
    """ListRoles; tags and the boundary are in GetRole's answer only."""
    prefix = params.get("PathPrefix") or "/"
    stored = context.state.roles.list(context.scope.account_wide)
    roles = [it.value for it in stored if it.value.path.startswith(prefix)]
    rows = [(it.name, described(it, listed=True)) for it in roles]
    page, members = iam_page(params, rows)
    return {"Roles": page, **members}


def update_role(context: CallContext, params: Params) -> Result:
    """UpdateRole."""
    refuse_fields(params, SIGN_IN_FIELDS)
    changes: dict[str, Any] = {}
    if params.get("Description") is not None:
        changes["description"] = params["Description"]
    if params.get("MaxSessionDuration") is not None:
        changes["max_session_s"] = params["MaxSessionDuration"]
    change_role(context, params["RoleName"], **changes)
    return {}


def update_role_description(context: CallContext, params: Params) -> Result:
    """UpdateRoleDescription."""
    role = change_role(context, params["RoleName"], description=params["Description"])
    return {"Role": described(role)}


def update_assume_role_policy(context: CallContext, params: Params) -> Result:
    """UpdateAssumeRolePolicy."""
    check_trust(params["PolicyDocument"])
    change_role(context, params["RoleName"], trust_policy=params["PolicyDocument"])
    return {}


def delete_role(context: CallContext, params: Params) -> Result:
    """DeleteRole: its sessions end with it; raises DeleteConflict while it has policies."""
    stored = modifiable_role(context, params["RoleName"])
    role, scope = stored.value, context.scope.account_wide
    if role.name == context.role_name:
        raise unmodifiable(role.name)  # it is the identity of the platform's own key
    if any(it.value.role == role.name for it in context.state.instance_profiles.list(scope)):
        raise delete_conflict(
            "Cannot delete entity, must remove roles from instance profile first."
        )
    if role.attached_policies:
        raise delete_conflict("Cannot delete entity, must detach all policies first.")
    if role.inline_policies:
        raise delete_conflict("Cannot delete entity, must delete policies first.")
    context.state.roles.delete(scope, role.name.lower(), expect=stored.version)
    return {}


def found_role(context: CallContext, name: str) -> Versioned[Role]:
    """The role of that name; raises NoSuchEntity."""
    stored = context.state.roles.get(context.scope.account_wide, name.lower())
    if stored is None:
        raise no_such_entity(f"The role with name {name} cannot be found.")
    return stored


def modifiable_role(context: CallContext, name: str) -> Versioned[Role]:
    """The role of that name; raises UnmodifiableEntity for a service's own."""
    stored = found_role(context, name)
    if stored.value.is_service_linked:
        raise unmodifiable(stored.value.name)
    return stored


def change_role(context: CallContext, name: str, **changes: Any) -> Role:
    """Replace fields of a role that may be changed."""
    stored = modifiable_role(context, name)
    changed = replace(stored.value, **changes)
    scope = context.scope.account_wide
    context.state.roles.put(scope, changed.name.lower(), changed, expect=stored.version)
    return changed


def check_trust(document: str) -> None:
    """Raise MalformedPolicyDocument or LimitExceeded."""
    checked_document(document, DocumentKind.TRUST)
    if document_size(document) > MAX_TRUST_CHARACTERS:
        raise limit_exceeded(f"Cannot exceed quota for ACLSizePerRole: {MAX_TRUST_CHARACTERS}")


def described(role: Role, *, listed: bool = False) -> Result:
    """The role in AWS's form."""
    shown: Result = {
        "Path": role.path,
        "RoleName": role.name,
        "RoleId": role.id,
        "Arn": role.arn,
        "CreateDate": role.created_at,
        "AssumeRolePolicyDocument": quote(role.trust_policy),
        "MaxSessionDuration": role.max_session_s,
    }
    if role.description is not None:
        shown["Description"] = role.description
    if role.boundary and not listed:
        shown["PermissionsBoundary"] = {
            "PermissionsBoundaryType": "PermissionsBoundaryPolicy",
            "PermissionsBoundaryArn": role.boundary,
        }
    if role.tags and not listed:
        shown["Tags"] = tag_members(role.tags)
    return shown
