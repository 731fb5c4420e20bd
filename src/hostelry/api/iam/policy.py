"""Managed policies: CreatePolicy, GetPolicy, ListPolicies, DeletePolicy and their tags."""

from dataclasses import replace
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.aws_policies import aws_policies
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.refusals import (
    already_exists,
    checked_document,
    delete_conflict,
    document_size,
    limit_exceeded,
    no_such_entity,
    validation,
)
from hostelry.api.iam.tag import merged_tags, remaining_tags, tag_members, tag_page, tags_of
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_iam_id
from hostelry.domain.managed_policy import ManagedPolicy, PolicyVersion
from hostelry.domain.role import Role
from hostelry.permissions.document import DocumentKind
from hostelry.store.records import Versioned

MAX_POLICIES = 1500
MAX_POLICY_CHARACTERS = 6144


def create_policy(context: CallContext, params: Params) -> Result:
    """CreatePolicy."""
    name, document = params["PolicyName"], params["PolicyDocument"]
    check_document(document)
    records, scope = context.state.managed_policies, context.scope.account_wide
    if records.get(scope, name.lower()) is not None:
        raise already_exists(
            f"A policy called {name} already exists. Duplicate names are not allowed."
        )
    if len(records.list(scope)) >= MAX_POLICIES:
        raise limit_exceeded(f"Cannot exceed quota for PoliciesPerAccount: {MAX_POLICIES}")
    policy = ManagedPolicy(
        account=context.scope.account,
        name=name,
        id=new_iam_id("ANPA"),
        created_at=context.now,
        updated_at=context.now,
        versions=(PolicyVersion(id="v1", document=document, created_at=context.now),),
        path=params.get("Path") or "/",
        description=params.get("Description"),
        tags=tags_of(params.get("Tags")),
    )
    records.put(scope, name.lower(), policy, expect=None)
    return {"Policy": described(context, policy)}


def get_policy(context: CallContext, params: Params) -> Result:
    """GetPolicy."""
    return {"Policy": described(context, found_policy(context, params["PolicyArn"]))}


def list_policies(context: CallContext, params: Params) -> Result:
    """ListPolicies; descriptions and tags are in GetPolicy's answer only."""
    own = [it.value for it in context.state.managed_policies.list(context.scope.account_wide)]
    wanted = {"AWS": list(aws_policies().values()), "Local": own}
    policies = wanted.get(params.get("Scope") or "All", [*wanted["AWS"], *own])
    prefix, usage = params.get("PathPrefix") or "/", params.get("PolicyUsageFilter")
    shown = []
    for policy in policies:
        attached, bounds = usage_of(context, policy.arn)
        used = {None: attached or bounds, "PermissionsPolicy": attached}.get(usage, bounds)
        if policy.path.startswith(prefix) and (used or not (params.get("OnlyAttached") or usage)):
            members = described(context, policy)
            shown.append((policy.arn, {k: v for k, v in members.items() if k not in DETAILS}))
    page, members = iam_page(params, shown)
    return {"Policies": page, **members}


DETAILS = ("Description", "Tags")


def delete_policy(context: CallContext, params: Params) -> Result:
    """DeletePolicy, with its default version; raises DeleteConflict while it is in use."""
    stored = own_policy(context, params["PolicyArn"])
    if any(usage_of(context, stored.value.arn)):
        raise delete_conflict("Cannot delete a policy attached to entities.")
    if len(stored.value.versions) > 1:
        raise delete_conflict(
            "This policy has more than one version. Before you delete a policy, you must delete"
            " the policy's versions. The default version is deleted with the policy."
        )
    scope = context.scope.account_wide
    context.state.managed_policies.delete(scope, stored.value.name.lower(), expect=stored.version)
    return {}


def tag_policy(context: CallContext, params: Params) -> Result:
    """TagPolicy: adds or overwrites."""
    policy = own_policy(context, params["PolicyArn"])
    change_policy(context, policy, tags=merged_tags(policy.value.tags, params))
    return {}


def untag_policy(context: CallContext, params: Params) -> Result:
    """UntagPolicy: keys that the policy does not have are no error."""
    policy = own_policy(context, params["PolicyArn"])
    change_policy(context, policy, tags=remaining_tags(policy.value.tags, params))
    return {}


def list_policy_tags(context: CallContext, params: Params) -> Result:
    """ListPolicyTags."""
    return tag_page(found_policy(context, params["PolicyArn"]).tags, params)


def found_policy(context: CallContext, arn: str) -> ManagedPolicy:
    """The policy of that ARN, AWS's own included; raises NoSuchEntity."""
    policy = known_policy(context, arn)
    if policy is None:
        raise missing(arn)
    return policy


def known_policy(context: CallContext, arn: str) -> ManagedPolicy | None:
    """The policy of that ARN, AWS's own included; None where there is none."""
    if arn in aws_policies():
        return aws_policies()[arn]
    name = arn.rpartition("/")[2].lower()
    stored = context.state.managed_policies.get(context.scope.account_wide, name)
    return stored.value if stored is not None and stored.value.arn == arn else None


def check_attachable(context: CallContext, arn: str) -> None:
    """Raise NoSuchEntity where no policy has that ARN."""
    if known_policy(context, arn) is None:
        raise no_such_entity(f"Policy {arn} does not exist or is not attachable.")


def own_policy(context: CallContext, arn: str) -> Versioned[ManagedPolicy]:
    """The account's policy of that ARN; raises NoSuchEntity, or AccessDenied for AWS's own."""
    if arn in aws_policies():
        raise ServiceError("AccessDenied", f"Policy {arn} is AWS's own and cannot be changed.", 403)
    name = arn.rpartition("/")[2].lower()
    stored = context.state.managed_policies.get(context.scope.account_wide, name)
    if stored is None or stored.value.arn != arn:
        raise missing(arn)
    return stored


def missing(arn: str) -> ServiceError:
    """The error for an ARN that no policy has; ValidationError where it is none of a policy."""
    if not arn.startswith("arn:") or ":policy/" not in arn:
        return validation(f"ARN {arn} is not valid.")
    return no_such_entity(f"Policy {arn} was not found.")


def change_policy(
    context: CallContext, stored: Versioned[ManagedPolicy], **changes: Any
) -> ManagedPolicy:
    """Replace fields of a policy."""
    changed = replace(stored.value, **changes)
    scope = context.scope.account_wide
    context.state.managed_policies.put(scope, changed.name.lower(), changed, expect=stored.version)
    return changed


def roles_with(context: CallContext, arn: str) -> tuple[list[Role], list[Role]]:
    """The roles that a policy is attached to, and those that it is the boundary of."""
    roles = [it.value for it in context.state.roles.list(context.scope.account_wide)]
    attached = [it for it in roles if arn in it.attached_policies]
    return attached, [it for it in roles if it.boundary == arn]


def usage_of(context: CallContext, arn: str) -> tuple[int, int]:
    """To how many roles a policy is attached, and of how many it is the boundary."""
    attached, bounds = roles_with(context, arn)
    return len(attached), len(bounds)


def check_document(document: str) -> None:
    """Raise MalformedPolicyDocument or LimitExceeded."""
    checked_document(document, DocumentKind.IDENTITY)
    if document_size(document) > MAX_POLICY_CHARACTERS:
        raise limit_exceeded(f"Cannot exceed quota for PolicySize: {MAX_POLICY_CHARACTERS}")


def described(context: CallContext, policy: ManagedPolicy) -> Result:
    """The policy in AWS's form."""
    attached, bounds = usage_of(context, policy.arn)
    shown: Result = {
        "PolicyName": policy.name,
        "PolicyId": policy.id,
        "Arn": policy.arn,
        "Path": policy.path,
        "DefaultVersionId": policy.default_version,
        "AttachmentCount": attached,
        "PermissionsBoundaryUsageCount": bounds,
        "IsAttachable": True,
        "CreateDate": policy.created_at,
        "UpdateDate": policy.updated_at,
        "Tags": tag_members(policy.tags),
    }
    if policy.description is not None:
        shown["Description"] = policy.description
    return shown
