"""Policies of roles: their own (inline), those attached to them, and their boundary."""

from urllib.parse import quote

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    build_page,
    count_characters,
    limit_exceeded,
    no_such_entity,
    parse_document,
)
from hostelry.api.iam.policy import check_attachable, find_policy, find_roles_with_policy
from hostelry.api.iam.role import change_role, find_modifiable_role, find_role
from hostelry.domain.role import Role
from hostelry.permissions.document import DocumentKind

MAX_INLINE_CHARACTERS = 10_240
MAX_ATTACHED = 20


def _check_inline(role: Role, name: str) -> None:
    if name not in role.inline_policies:
        raise no_such_entity(f"The role policy with name {name} cannot be found.")


def put_role_policy(context: CallContext, params: Params) -> Result:
    """PutRolePolicy: adds or replaces an inline policy."""
    role = find_modifiable_role(context, params["RoleName"]).value
    document = params["PolicyDocument"]
    parse_document(document, DocumentKind.IDENTITY)
    policies = {**role.inline_policies, params["PolicyName"]: document}
    if sum(map(count_characters, policies.values())) > MAX_INLINE_CHARACTERS:
        raise limit_exceeded(
            f"Maximum policy size of {MAX_INLINE_CHARACTERS} bytes exceeded for role {role.name}"
        )
    change_role(context, role.name, inline_policies=policies)
    return {}


def get_role_policy(context: CallContext, params: Params) -> Result:
    """GetRolePolicy."""
    role, name = find_role(context, params["RoleName"]).value, params["PolicyName"]
    _check_inline(role, name)
    document = quote(role.inline_policies[name])
    return {"RoleName": role.name, "PolicyName": name, "PolicyDocument": document}


def list_role_policies(context: CallContext, params: Params) -> Result:
    """ListRolePolicies: the names of the inline policies."""
    role = find_role(context, params["RoleName"]).value
    page, members = build_page(params, [(name, name) for name in role.inline_policies])
    return {"PolicyNames": page, **members}


def delete_role_policy(context: CallContext, params: Params) -> Result:
    """DeleteRolePolicy."""
    role, name = find_modifiable_role(context, params["RoleName"]).value, params["PolicyName"]
    _check_inline(role, name)
    left = {key: it for key, it in role.inline_policies.items() if key != name}
    change_role(context, role.name, inline_policies=left)
    return {}


def attach_role_policy(context: CallContext, params: Params) -> Result:
    """AttachRolePolicy. A policy that is attached already is ignored."""
    role, arn = find_modifiable_role(context, params["RoleName"]).value, params["PolicyArn"]
    check_attachable(context, arn)
    if arn in role.attached_policies:
        return {}
    if len(role.attached_policies) >= MAX_ATTACHED:
        raise limit_exceeded(f"Cannot exceed quota for PoliciesPerRole: {MAX_ATTACHED}")
    change_role(context, role.name, attached_policies=(*role.attached_policies, arn))
    return {}


def detach_role_policy(context: CallContext, params: Params) -> Result:
    """DetachRolePolicy."""
    role, arn = find_modifiable_role(context, params["RoleName"]).value, params["PolicyArn"]
    if arn not in role.attached_policies:
        raise no_such_entity(f"Policy {arn} was not found.")
    left = tuple(it for it in role.attached_policies if it != arn)
    change_role(context, role.name, attached_policies=left)
    return {}


def list_attached_role_policies(context: CallContext, params: Params) -> Result:
    """ListAttachedRolePolicies."""
    role, prefix = find_role(context, params["RoleName"]).value, params.get("PathPrefix") or "/"
    policies = [find_policy(context, arn) for arn in role.attached_policies]
    rows = [
        (policy.name, {"PolicyName": policy.name, "PolicyArn": policy.arn})
        for policy in policies
        if policy.path.startswith(prefix)
    ]
    page, members = build_page(params, rows)
    return {"AttachedPolicies": page, **members}


def list_entities_for_policy(context: CallContext, params: Params) -> Result:
    """ListEntitiesForPolicy: only roles, because users and groups do not exist here."""
    policy = find_policy(context, params["PolicyArn"])
    attached, bounded = find_roles_with_policy(context, policy.arn)
    usage, kind = params.get("PolicyUsageFilter"), params.get("EntityFilter") or "Role"
    wanted = {"PermissionsPolicy": attached, "PermissionsBoundary": bounded}
    prefix = params.get("PathPrefix") or "/"
    roles = {it.name: it for it in wanted.get(usage or "", [*attached, *bounded])}
    rows = [
        (role.name, {"RoleName": role.name, "RoleId": role.id})
        for role in roles.values()
        if kind == "Role" and role.path.startswith(prefix)
    ]
    page, members = build_page(params, rows)
    return {"PolicyRoles": page, "PolicyUsers": [], "PolicyGroups": [], **members}


def put_role_permissions_boundary(context: CallContext, params: Params) -> Result:
    """PutRolePermissionsBoundary."""
    check_attachable(context, params["PermissionsBoundary"])
    change_role(context, params["RoleName"], boundary=params["PermissionsBoundary"])
    return {}


def delete_role_permissions_boundary(context: CallContext, params: Params) -> Result:
    """DeleteRolePermissionsBoundary."""
    change_role(context, params["RoleName"], boundary=None)
    return {}
