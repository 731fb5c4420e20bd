"""Instance profiles, which are stored and listed, but give no machine a role."""

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    already_exists,
    build_page,
    delete_conflict,
    describe_tags,
    limit_exceeded,
    no_such_entity,
    parse_tags,
)
from hostelry.api.iam.role import PROFILES, ROLES, describe_role
from hostelry.base.ids import new_iam_id
from hostelry.domain.role import InstanceProfile
from hostelry.store.records import Versioned

MAX_PROFILES = 1000


def create_instance_profile(context: CallContext, params: Params) -> Result:
    """CreateInstanceProfile."""
    name = params["InstanceProfileName"]
    if PROFILES.get(context, name.lower()) is not None:
        raise already_exists(f"Instance Profile {name} already exists.")
    if len(PROFILES.all(context)) >= MAX_PROFILES:
        raise limit_exceeded(f"Cannot exceed quota for InstanceProfilesPerAccount: {MAX_PROFILES}")
    profile = InstanceProfile(
        account=context.scope.account,
        name=name,
        id=new_iam_id("AIPA"),
        created_at=context.now,
        path=params.get("Path") or "/",
        tags=parse_tags(params.get("Tags")),
    )
    return {"InstanceProfile": _describe(context, PROFILES.put(context, profile))}


def get_instance_profile(context: CallContext, params: Params) -> Result:
    """GetInstanceProfile."""
    profile = _find_profile(context, params["InstanceProfileName"]).value
    return {"InstanceProfile": _describe(context, profile)}


def list_instance_profiles(context: CallContext, params: Params) -> Result:
    """ListInstanceProfiles."""
    prefix = params.get("PathPrefix") or "/"
    shown = [it for it in PROFILES.values(context) if it.path.startswith(prefix)]
    return _answer_page(context, params, shown)


def list_instance_profiles_for_role(context: CallContext, params: Params) -> Result:
    """ListInstanceProfilesForRole."""
    role = ROLES.find(context, params["RoleName"]).value
    shown = [it for it in PROFILES.values(context) if it.role == role.name]
    return _answer_page(context, params, shown)


def add_role_to_instance_profile(context: CallContext, params: Params) -> Result:
    """AddRoleToInstanceProfile. Raises LimitExceeded for a second role."""
    stored = _find_profile(context, params["InstanceProfileName"])
    role = ROLES.find(context, params["RoleName"]).value
    if stored.value.role:
        raise limit_exceeded("Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
    PROFILES.put(context, replace(stored.value, role=role.name), stored)
    return {}


def remove_role_from_instance_profile(context: CallContext, params: Params) -> Result:
    """RemoveRoleFromInstanceProfile."""
    stored = _find_profile(context, params["InstanceProfileName"])
    role = ROLES.find(context, params["RoleName"]).value
    if stored.value.role != role.name:
        raise no_such_entity(f"The role with name {role.name} cannot be found.")
    PROFILES.put(context, replace(stored.value, role=""), stored)
    return {}


def delete_instance_profile(context: CallContext, params: Params) -> Result:
    """DeleteInstanceProfile. Raises DeleteConflict while the profile has a role."""
    stored = _find_profile(context, params["InstanceProfileName"])
    if stored.value.role:
        raise delete_conflict(
            "Cannot delete entity, must remove roles from instance profile first."
        )
    PROFILES.delete(context, stored)
    return {}


def _find_profile(context: CallContext, name: str) -> Versioned[InstanceProfile]:
    stored = PROFILES.get(context, name.lower())
    if stored is None:
        raise PROFILES.not_found(context, name)
    return stored


def _answer_page(context: CallContext, params: Params, shown: list[InstanceProfile]) -> Result:
    page, members = build_page(params, [(it.name, _describe(context, it)) for it in shown])
    return {"InstanceProfiles": page, **members}


def _describe(context: CallContext, profile: InstanceProfile) -> Result:
    roles = [ROLES.find(context, profile.role).value] if profile.role else []
    return {
        "Path": profile.path,
        "InstanceProfileName": profile.name,
        "InstanceProfileId": profile.id,
        "Arn": profile.arn,
        "CreateDate": profile.created_at,
        "Roles": [describe_role(it, listed=True) for it in roles],
        "Tags": describe_tags(profile.tags),
    }
