"""Versions of managed policies: create, get, list, delete, and which is the default."""

from urllib.parse import quote

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.policy import change_policy, check_document, found_policy, own_policy
from hostelry.api.iam.refusals import delete_conflict, limit_exceeded, no_such_entity
from hostelry.domain.managed_policy import ManagedPolicy, PolicyVersion

MAX_VERSIONS = 5


def create_policy_version(context: CallContext, params: Params) -> Result:
    """CreatePolicyVersion; raises LimitExceeded for a sixth one."""
    stored = own_policy(context, params["PolicyArn"])
    policy, document = stored.value, params["PolicyDocument"]
    check_document(document)
    if len(policy.versions) >= MAX_VERSIONS:
        raise limit_exceeded(
            f"A managed policy can have up to {MAX_VERSIONS} versions. Before you create a new"
            " version, you must delete an existing version."
        )
    made = PolicyVersion(id=f"v{policy.next_version}", document=document, created_at=context.now)
    changed = change_policy(
        context,
        stored,
        versions=(*policy.versions, made),
        next_version=policy.next_version + 1,
        default_version=made.id if params.get("SetAsDefault") else policy.default_version,
        updated_at=context.now,
    )
    shown = described(changed, made)
    return {"PolicyVersion": {k: v for k, v in shown.items() if k != "Document"}}


def get_policy_version(context: CallContext, params: Params) -> Result:
    """GetPolicyVersion, with its document."""
    policy = found_policy(context, params["PolicyArn"])
    return {"PolicyVersion": described(policy, found_version(policy, params["VersionId"]))}


def list_policy_versions(context: CallContext, params: Params) -> Result:
    """ListPolicyVersions, the newest first, without their documents."""
    policy = found_policy(context, params["PolicyArn"])
    rows = []
    for number, version in enumerate(reversed(policy.versions)):
        shown = described(policy, version)
        rows.append((f"{number}", {k: v for k, v in shown.items() if k != "Document"}))
    page, members = iam_page(params, rows)
    return {"Versions": page, **members}


def set_default_policy_version(context: CallContext, params: Params) -> Result:
    """SetDefaultPolicyVersion."""
    stored = own_policy(context, params["PolicyArn"])
    version = found_version(stored.value, params["VersionId"])
    change_policy(context, stored, default_version=version.id, updated_at=context.now)
    return {}


def delete_policy_version(context: CallContext, params: Params) -> Result:
    """DeletePolicyVersion; raises DeleteConflict for the default one."""
    stored = own_policy(context, params["PolicyArn"])
    version = found_version(stored.value, params["VersionId"])
    if version.id == stored.value.default_version:
        raise delete_conflict("Cannot delete the default version of a policy.")
    left = tuple(it for it in stored.value.versions if it.id != version.id)
    change_policy(context, stored, versions=left, updated_at=context.now)
    return {}


def found_version(policy: ManagedPolicy, version_id: str) -> PolicyVersion:
    """The version of that id; raises NoSuchEntity."""
    for version in policy.versions:
        if version.id == version_id:
            return version
    raise no_such_entity(
        f"Policy {policy.arn} version {version_id} does not exist or is not attachable."
    )


def described(policy: ManagedPolicy, version: PolicyVersion) -> Result:
    """The version in AWS's form."""
    return {
        "VersionId": version.id,
        "IsDefaultVersion": version.id == policy.default_version,
        "CreateDate": version.created_at,
        "Document": quote(version.document),
    }
