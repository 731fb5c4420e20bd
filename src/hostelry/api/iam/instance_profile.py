"""Instance profiles: kept and listed; no machine here gets a role by one."""

from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.refusals import (
    already_exists,
    delete_conflict,
    limit_exceeded,
    no_such_entity,
)
from hostelry.api.iam.role import described as described_role
from hostelry.api.iam.role import found_role
from hostelry.api.iam.tag import tag_members, tags_of
from hostelry.base.ids import new_iam_id
from hostelry.domain.instance_profile import InstanceProfile
from hostelry.store.records import Versioned

MAX_PROFILES = 1000


def create_instance_profile(context: CallContext, params: Params) -> Result:
    """CreateInstanceProfile."""
    name, records = params["InstanceProfileName"], context.state.instance_profiles
    scope = context.scope.account_wide
    if records.get(scope, name.lower()) is not None:
        raise already_exists(f"Instance Profile {name} already exists.")
    if len(records.list(scope)) >= MAX_PROFILES:
        raise limit_exceeded(f"Cannot exceed quota for InstanceProfilesPerAccount: {MAX_PROFILES}")
    profile = InstanceProfile(
        account=scope.account,
        name=name,
        id=new_iam_id("AIPA"),
        created_at=context.now,
        path=params.get("Path") or "/",
        tags=tags_of(params.get("Tags")),
    )
    records.put(scope, name.lower(), profile, expect=None)
    return {"InstanceProfile": described(context, profile)}


def get_instance_profile(context: CallContext, params: Params) -> Result:
    """GetInstanceProfile."""
    profile = found_profile(context, params["InstanceProfileName"]).value
    return {"InstanceProfile": described(context, profile)}


def list_instance_profiles(context: CallContext, params: Params) -> Result:
    """ListInstanceProfiles."""
    prefix = params.get("PathPrefix") or "/"
    return listed(context, params, [it for it in profiles(context) if it.path.startswith(prefix)])


def list_instance_profiles_for_role(context: CallContext, params: Params) -> Result:
    """ListInstanceProfilesForRole."""
    role = found_role(context, params["RoleName"]).value
    return listed(context, params, [it for it in profiles(context) if it.role == role.name])


def add_role_to_instance_profile(context: CallContext, params: Params) -> Result:
    """AddRoleToInstanceProfile; raises LimitExceeded for a second role."""
    stored = found_profile(context, params["InstanceProfileName"])
    role = found_role(context, params["RoleName"]).value
    if stored.value.role:
        raise limit_exceeded("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
    put_profile(context, stored, role.name)
    return {}


def remove_role_from_instance_profile(context: CallContext, params: Params) -> Result:
    """RemoveRoleFromInstanceProfile."""
    stored = found_profile(context, params["InstanceProfileName"])
    role = found_role(context, params["RoleName"]).value
    if stored.value.role != role.name:
        raise no_such_entity(f"The role with name {role.name} cannot be found.")
    put_profile(context, stored, "")
    return {}


def delete_instance_profile(context: CallContext, params: Params) -> Result:
    """DeleteInstanceProfile; raises DeleteConflict while it has a role."""
    stored = found_profile(context, params["InstanceProfileName"])
    if stored.value.role:
        raise delete_conflict(
            "Cannot delete entity, must remove roles from instance profile first."
        )
    name, scope = stored.value.name.lower(), context.scope.account_wide
    context.state.instance_profiles.delete(scope, name, expect=stored.version)
    return {}


def found_profile(context: CallContext, name: str) -> Versioned[InstanceProfile]:
    """The instance profile of that name; raises NoSuchEntity."""
    stored = context.state.instance_profiles.get(context.scope.account_wide, name.lower())
    if stored is None:
        raise no_such_entity(f"Instance Profile {name} cannot be found.")
    return stored


def put_profile(context: CallContext, stored: Versioned[InstanceProfile], role: str) -> None:
    """Give the instance profile a role, or none."""
    name, scope = stored.value.name.lower(), context.scope.account_wide
    changed = replace(stored.value, role=role)
    context.state.instance_profiles.put(scope, name, changed, expect=stored.version)


def profiles(context: CallContext) -> list[InstanceProfile]:
    """Every instance profile of the account."""
    return [it.value for it in context.state.instance_profiles.list(context.scope.account_wide)]


def listed(context: CallContext, params: Params, shown: list[InstanceProfile]) -> Result:
    """A page of instance profiles."""
    page, members = iam_page(params, [(it.name, described(context, it)) for it in shown])
    return {"InstanceProfiles": page, **members}


def described(context: CallContext, profile: InstanceProfile) -> Result:
    """The instance profile in AWS's form."""
    roles = [found_role(context, profile.role).value] if profile.role else []
    return {
        "Path": profile.path,
        "InstanceProfileName": profile.name,
        "InstanceProfileId": profile.id,
        "Arn": profile.arn,
        "CreateDate": profile.created_at,
        "Roles": [described_role(it, listed=True) for it in roles],
        "Tags": tag_members(profile.tags),
    }
