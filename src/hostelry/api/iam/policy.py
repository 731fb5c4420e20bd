"""Managed policies: made, listed, deleted and tagged. Their versions."""

from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    already_exists,
    answer_tag_page,
    build_page,
    count_characters,
    delete_conflict,
    describe_tags,
    limit_exceeded,
    merge_tags,
    no_such_entity,
    parse_document,
    parse_tags,
    remove_tags,
    validation_failed,
)
from hostelry.api.iam.aws_policies import aws_policies
from hostelry.api.record_kind import RecordKind
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_iam_id
from hostelry.domain.principal import User
from hostelry.domain.role import ManagedPolicy, PolicyVersion, Role
from hostelry.permissions.document import DocumentKind
from hostelry.store.records import Versioned

MAX_POLICIES = 1500
MAX_POLICY_CHARACTERS = 6144
MAX_VERSIONS = 5


POLICIES = RecordKind[ManagedPolicy](
    records=lambda state: state.managed_policies,
    not_found=lambda _, arn: _not_found(arn),
    record_name=lambda policy: policy.name.lower(),
    is_account_wide=True,
)


def create_policy(context: CallContext, params: Params) -> Result:
    """CreatePolicy."""
    name, document = params["PolicyName"], params["PolicyDocument"]
    _check_document(document)
    if POLICIES.get(context, name.lower()) is not None:
        raise already_exists(
            f"A policy called {name} already exists. Duplicate names are not allowed."
        )
    if len(POLICIES.all(context)) >= MAX_POLICIES:
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
        tags=parse_tags(params.get("Tags")),
    )
    return {"Policy": _describe_policy(context, POLICIES.put(context, policy))}


def get_policy(context: CallContext, params: Params) -> Result:
    """GetPolicy."""
    return {"Policy": _describe_policy(context, find_policy(context, params["PolicyArn"]))}


def list_policies(context: CallContext, params: Params) -> Result:
    """ListPolicies. Only GetPolicy shows descriptions and tags."""
    own = POLICIES.values(context)
    wanted = {"AWS": list(aws_policies().values()), "Local": own}
    policies = wanted.get(params.get("Scope") or "All", [*wanted["AWS"], *own])
    prefix, usage = params.get("PathPrefix") or "/", params.get("PolicyUsageFilter")
    shown = []
    for policy in policies:
        attached, bounds = _count_usage(context, policy.arn)
        used = {None: attached or bounds, "PermissionsPolicy": attached}.get(usage, bounds)
        if policy.path.startswith(prefix) and (used or not (params.get("OnlyAttached") or usage)):
            members = _describe_policy(context, policy)
            shown.append((policy.arn, {k: v for k, v in members.items() if k not in DETAILS}))
    page, members = build_page(params, shown)
    return {"Policies": page, **members}


DETAILS = ("Description", "Tags")


def delete_policy(context: CallContext, params: Params) -> Result:
    """DeletePolicy, with its default version. Raises DeleteConflict while the policy is in use."""
    stored = _find_own_policy(context, params["PolicyArn"])
    if any(_count_usage(context, stored.value.arn)):
        raise delete_conflict("Cannot delete a policy attached to entities.")
    if len(stored.value.versions) > 1:
        raise delete_conflict(
            "This policy has more than one version. Before you delete a policy, you must delete"
            " the policy's versions. The default version is deleted with the policy."
        )
    POLICIES.delete(context, stored)
    return {}


def tag_policy(context: CallContext, params: Params) -> Result:
    """TagPolicy: adds or overwrites."""
    policy = _find_own_policy(context, params["PolicyArn"])
    _change_policy(context, policy, tags=merge_tags(policy.value.tags, params))
    return {}


def untag_policy(context: CallContext, params: Params) -> Result:
    """UntagPolicy. Missing keys are ignored."""
    policy = _find_own_policy(context, params["PolicyArn"])
    _change_policy(context, policy, tags=remove_tags(policy.value.tags, params))
    return {}


def list_policy_tags(context: CallContext, params: Params) -> Result:
    """ListPolicyTags."""
    return answer_tag_page(find_policy(context, params["PolicyArn"]).tags, params)


def find_policy(context: CallContext, arn: str) -> ManagedPolicy:
    """The policy with the ARN, which may be AWS's own. Raises NoSuchEntity."""
    policy = get_policy_at(context, arn)
    if policy is None:
        raise _not_found(arn)
    return policy


def get_policy_at(context: CallContext, arn: str) -> ManagedPolicy | None:
    """The policy with the ARN, which may be AWS's own, or None."""
    if arn in aws_policies():
        return aws_policies()[arn]
    stored = _get_own_policy(context, arn)
    return stored.value if stored else None


def _get_own_policy(context: CallContext, arn: str) -> Versioned[ManagedPolicy] | None:
    stored = POLICIES.get(context, arn.rpartition("/")[2].lower())
    return stored if stored is not None and stored.value.arn == arn else None


def check_attachable(context: CallContext, arn: str) -> None:
    """Raise NoSuchEntity if no policy has the ARN."""
    if get_policy_at(context, arn) is None:
        raise no_such_entity(f"Policy {arn} does not exist or is not attachable.")


def _find_own_policy(context: CallContext, arn: str) -> Versioned[ManagedPolicy]:
    """The account's policy with the ARN. Raises NoSuchEntity, or AccessDenied for AWS's own."""
    if arn in aws_policies():
        raise ServiceError("AccessDenied", f"Policy {arn} is AWS's own and cannot be changed.", 403)
    stored = _get_own_policy(context, arn)
    if stored is None:
        raise _not_found(arn)
    return stored


def _not_found(arn: str) -> ServiceError:
    """NoSuchEntity, or ValidationError for an ARN of another kind of resource."""
    if not arn.startswith("arn:") or ":policy/" not in arn:
        return validation_failed(f"ARN {arn} is not valid.")
    return no_such_entity(f"Policy {arn} was not found.")


def _change_policy(
    context: CallContext, stored: Versioned[ManagedPolicy], **changes: Any
) -> ManagedPolicy:
    return POLICIES.put(context, replace(stored.value, **changes), stored)


def list_entities_for_policy(context: CallContext, params: Params) -> Result:
    """ListEntitiesForPolicy: roles and users. Groups are not served."""
    policy = find_policy(context, params["PolicyArn"])
    attached, bounded = _find_entities(context, policy.arn)
    usage, kind = params.get("PolicyUsageFilter"), params.get("EntityFilter")
    wanted = {"PermissionsPolicy": attached, "PermissionsBoundary": bounded}
    prefix = params.get("PathPrefix") or "/"
    entities = {it.id: it for it in wanted.get(usage or "", [*attached, *bounded])}
    rows = []
    for entity in entities.values():
        word = "Role" if isinstance(entity, Role) else "User"
        if kind in (None, word) and entity.path.startswith(prefix):
            members = {f"{word}Name": entity.name, f"{word}Id": entity.id}
            rows.append((f"{word}/{entity.name}", (word, members)))
    page, members = build_page(params, rows)
    listed = {
        f"Policy{word}s": [it for kind, it in page if kind == word]
        for word in ("Role", "User", "Group")
    }
    return {**listed, **members}


def _find_entities(context: CallContext, arn: str) -> tuple[list[Role | User], list[Role | User]]:
    """The roles and users to which a policy is attached, and those whose boundary it is."""
    state, scope = context.state, context.scope.account_wide
    entities: list[Role | User] = [it.value for it in state.roles.list(scope)]
    entities += [it.value for it in state.users.list(scope)]
    attached = [it for it in entities if arn in it.attached_policies]
    return attached, [it for it in entities if it.boundary == arn]


def _count_usage(context: CallContext, arn: str) -> tuple[int, int]:
    """The numbers of entities to which a policy is attached, and whose boundary it is."""
    attached, bounds = _find_entities(context, arn)
    return len(attached), len(bounds)


def _check_document(document: str) -> None:
    parse_document(document, DocumentKind.IDENTITY)
    if count_characters(document) > MAX_POLICY_CHARACTERS:
        raise limit_exceeded(f"Cannot exceed quota for PolicySize: {MAX_POLICY_CHARACTERS}")


def _describe_policy(context: CallContext, policy: ManagedPolicy) -> Result:
    attached, bounds = _count_usage(context, policy.arn)
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
        "Tags": describe_tags(policy.tags),
    }
    if policy.description is not None:
        shown["Description"] = policy.description
    return shown


def create_policy_version(context: CallContext, params: Params) -> Result:
    """CreatePolicyVersion. Raises LimitExceeded for a sixth version."""
    stored = _find_own_policy(context, params["PolicyArn"])
    policy, document = stored.value, params["PolicyDocument"]
    _check_document(document)
    if len(policy.versions) >= MAX_VERSIONS:
        raise limit_exceeded(
            f"A managed policy can have up to {MAX_VERSIONS} versions. Before you create a new"
            " version, you must delete an existing version."
        )
    made = PolicyVersion(id=f"v{policy.next_version}", document=document, created_at=context.now)
    changed = _change_policy(
        context,
        stored,
        versions=(*policy.versions, made),
        next_version=policy.next_version + 1,
        default_version=made.id if params.get("SetAsDefault") else policy.default_version,
        updated_at=context.now,
    )
    shown = _describe_version(changed, made)
    return {"PolicyVersion": {k: v for k, v in shown.items() if k != "Document"}}


def get_policy_version(context: CallContext, params: Params) -> Result:
    """GetPolicyVersion, with its document."""
    policy = find_policy(context, params["PolicyArn"])
    return {"PolicyVersion": _describe_version(policy, _find_version(policy, params["VersionId"]))}


def list_policy_versions(context: CallContext, params: Params) -> Result:
    """ListPolicyVersions, newest first, without their documents."""
    policy = find_policy(context, params["PolicyArn"])
    rows = []
    for number, version in enumerate(reversed(policy.versions)):
        shown = _describe_version(policy, version)
        rows.append((f"{number}", {k: v for k, v in shown.items() if k != "Document"}))
    page, members = build_page(params, rows)
    return {"Versions": page, **members}


def set_default_policy_version(context: CallContext, params: Params) -> Result:
    """SetDefaultPolicyVersion."""
    stored = _find_own_policy(context, params["PolicyArn"])
    version = _find_version(stored.value, params["VersionId"])
    _change_policy(context, stored, default_version=version.id, updated_at=context.now)
    return {}


def delete_policy_version(context: CallContext, params: Params) -> Result:
    """DeletePolicyVersion. Raises DeleteConflict for the default version."""
    stored = _find_own_policy(context, params["PolicyArn"])
    version = _find_version(stored.value, params["VersionId"])
    if version.id == stored.value.default_version:
        raise delete_conflict("Cannot delete the default version of a policy.")
    left = tuple(it for it in stored.value.versions if it.id != version.id)
    _change_policy(context, stored, versions=left, updated_at=context.now)
    return {}


def _find_version(policy: ManagedPolicy, version_id: str) -> PolicyVersion:
    for version in policy.versions:
        if version.id == version_id:
            return version
    raise no_such_entity(
        f"Policy {policy.arn} version {version_id} does not exist or is not attachable."
    )


def _describe_version(policy: ManagedPolicy, version: PolicyVersion) -> Result:
    return {
        "VersionId": version.id,
        "IsDefaultVersion": version.id == policy.default_version,
        "CreateDate": version.created_at,
        "Document": quote(version.document),
    }
