"""Roles, and service-linked roles, which only their service assumes."""

import json
from typing import Any
from urllib.parse import quote

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    already_exists,
    build_page,
    count_characters,
    delete_conflict,
    invalid_input,
    limit_exceeded,
    no_such_entity,
    parse_document,
    parse_tags,
    unmodifiable,
    validation_failed,
)
from hostelry.api.iam.policy import check_attachable
from hostelry.api.iam.principal_kind import (
    PrincipalKind,
    check_without_policies,
    describe_details,
)
from hostelry.api.record_kind import RecordKind
from hostelry.api.refusals import refuse_fields
from hostelry.base.ids import new_iam_id, new_uuid
from hostelry.domain.role import SERVICE_LINKED_PATH, InstanceProfile, Role
from hostelry.permissions.document import DocumentKind

MAX_ROLES = 1000
MAX_TRUST_CHARACTERS = 2048
DEFAULT_SESSION_S = 3600
SIGN_IN_FIELDS = ("MaxSigninSessionDuration", "ResetMaxSigninSessionDuration")
# AWS's names of some roles. Other names are made from the first part of the service's name.
SERVICE_ROLE_NAMES = {
    "sagemaker.application-autoscaling.amazonaws.com": "ApplicationAutoScaling_SageMakerEndpoint",
    "sagemaker.amazonaws.com": "SageMaker",
    "autoscaling.amazonaws.com": "AutoScaling",
}


def _check_modifiable(role: Role) -> None:
    if role.is_service_linked:
        raise unmodifiable(role.name)


ROLES = PrincipalKind[Role](
    word="Role",
    records=RecordKind(
        records=lambda state: state.roles,
        not_found=lambda _, name: no_such_entity(f"The role with name {name} cannot be found."),
        record_name=lambda role: role.name.lower(),
        is_account_wide=True,
    ),
    max_inline_characters=10_240,
    check_modifiable=_check_modifiable,
)
PROFILES = RecordKind[InstanceProfile](
    records=lambda state: state.instance_profiles,
    not_found=lambda _, name: no_such_entity(f"Instance Profile {name} cannot be found."),
    record_name=lambda profile: profile.name.lower(),
    is_account_wide=True,
)


def create_role(context: CallContext, params: Params) -> Result:
    """CreateRole."""
    refuse_fields(params, SIGN_IN_FIELDS)
    name, path = params["RoleName"], params.get("Path") or "/"
    _check_trust(params["AssumeRolePolicyDocument"])
    if path.startswith(SERVICE_LINKED_PATH):
        raise validation_failed(
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
        tags=parse_tags(params.get("Tags")),
    )
    return {"Role": describe_role(_add_role(context, role))}


def _add_role(context: CallContext, role: Role) -> Role:
    """Store a new role. Raises EntityAlreadyExists."""
    if ROLES.records.get(context, role.name.lower()) is not None:
        raise already_exists(f"Role with name {role.name} already exists.")
    if len(ROLES.records.all(context)) >= MAX_ROLES:
        raise limit_exceeded(f"Cannot exceed quota for RolesPerAccount: {MAX_ROLES}")
    return ROLES.records.put(context, role)


def get_role(context: CallContext, params: Params) -> Result:
    """GetRole."""
    return {"Role": describe_role(ROLES.find(context, params["RoleName"]).value)}


def list_roles(context: CallContext, params: Params) -> Result:
    """ListRoles. Only GetRole shows tags and the boundary."""
    prefix = params.get("PathPrefix") or "/"
    roles = [it for it in ROLES.records.values(context) if it.path.startswith(prefix)]
    rows = [(it.name, describe_role(it, listed=True)) for it in roles]
    page, members = build_page(params, rows)
    return {"Roles": page, **members}


def update_role(context: CallContext, params: Params) -> Result:
    """UpdateRole."""
    refuse_fields(params, SIGN_IN_FIELDS)
    changes: dict[str, Any] = {}
    if params.get("Description") is not None:
        changes["description"] = params["Description"]
    if params.get("MaxSessionDuration") is not None:
        changes["max_session_s"] = params["MaxSessionDuration"]
    ROLES.change(context, params["RoleName"], **changes)
    return {}


def update_role_description(context: CallContext, params: Params) -> Result:
    """UpdateRoleDescription."""
    role = ROLES.change(context, params["RoleName"], description=params["Description"])
    return {"Role": describe_role(role)}


def update_assume_role_policy(context: CallContext, params: Params) -> Result:
    """UpdateAssumeRolePolicy."""
    _check_trust(params["PolicyDocument"])
    ROLES.change(context, params["RoleName"], trust_policy=params["PolicyDocument"])
    return {}


def delete_role(context: CallContext, params: Params) -> Result:
    """DeleteRole, with its sessions. Raises DeleteConflict while the role has policies."""
    stored = ROLES.find_modifiable(context, params["RoleName"])
    role = stored.value
    if role.arn == context.role_arn:
        raise unmodifiable(role.name)  # it is the identity of the platform's own key
    if any(it.role == role.name for it in PROFILES.values(context)):
        raise delete_conflict(
            "Cannot delete entity, must remove roles from instance profile first."
        )
    check_without_policies(role)
    ROLES.records.delete(context, stored)
    return {}


def _check_trust(document: str) -> None:
    parse_document(document, DocumentKind.TRUST)
    if count_characters(document) > MAX_TRUST_CHARACTERS:
        raise limit_exceeded(f"Cannot exceed quota for ACLSizePerRole: {MAX_TRUST_CHARACTERS}")


def describe_role(role: Role, *, listed: bool = False) -> Result:
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
    return shown if listed else shown | describe_details(role)


def build_service_role_name(service: str, suffix: str | None) -> str:
    """The name of a service's role."""
    base = SERVICE_ROLE_NAMES.get(service) or service.split(".")[0].replace(
        "-", "_"
    ).title().replace("_", "")
    return f"AWSServiceRoleFor{base}" + (f"_{suffix}" if suffix else "")


def create_service_linked_role(context: CallContext, params: Params) -> Result:
    """CreateServiceLinkedRole. Raises InvalidInput if the name is taken."""
    service, suffix = params["AWSServiceName"], params.get("CustomSuffix")
    if not service.endswith(".amazonaws.com"):
        raise invalid_input(f"Service {service} is not a valid AWS service name.")
    name = build_service_role_name(service, suffix)
    if ROLES.records.get(context, name.lower()) is not None:
        raise invalid_input(
            f"Service role name {name} has been taken in this account, please try a different"
            " suffix."
        )
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    role = Role(
        account=context.scope.account,
        name=name,
        id=new_iam_id("AROA"),
        trust_policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
        created_at=context.now,
        path=f"{SERVICE_LINKED_PATH}{service}/",
        description=params.get("Description"),
    )
    return {"Role": describe_role(_add_role(context, role))}


def delete_service_linked_role(context: CallContext, params: Params) -> Result:
    """DeleteServiceLinkedRole: deletes the role at once."""
    stored = ROLES.find(context, params["RoleName"])
    role = stored.value
    if not role.is_service_linked:
        raise invalid_input(f"Role {role.name} is not a service-linked role.")
    ROLES.records.delete(context, stored)
    return {"DeletionTaskId": f"task{role.path}{role.name}/{new_uuid()}"}


def get_service_linked_role_deletion_status(context: CallContext, params: Params) -> Result:
    """GetServiceLinkedRoleDeletionStatus: SUCCEEDED, since no deletion takes time."""
    task = params["DeletionTaskId"]
    parts = task.split("/")
    if not task.startswith(f"task{SERVICE_LINKED_PATH}") or len(parts) != 5:
        raise no_such_entity(f"Deletion Task Id {task} cannot be found.")
    return {"Status": "SUCCEEDED"}
