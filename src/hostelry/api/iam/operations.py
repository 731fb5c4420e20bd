"""IAM's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.iam import (
    instance_profile,
    policy,
    policy_version,
    role,
    role_policy,
    role_tag,
    service_linked_role,
    simulation,
)

OPERATIONS: Mapping[str, Operation] = {
    "CreateRole": role.create_role,
    "GetRole": role.get_role,
    "ListRoles": role.list_roles,
    "UpdateRole": role.update_role,
    "UpdateRoleDescription": role.update_role_description,
    "UpdateAssumeRolePolicy": role.update_assume_role_policy,
    "DeleteRole": role.delete_role,
    "TagRole": role_tag.tag_role,
    "UntagRole": role_tag.untag_role,
    "ListRoleTags": role_tag.list_role_tags,
    "PutRolePolicy": role_policy.put_role_policy,
    "GetRolePolicy": role_policy.get_role_policy,
    "ListRolePolicies": role_policy.list_role_policies,
    "DeleteRolePolicy": role_policy.delete_role_policy,
    "AttachRolePolicy": role_policy.attach_role_policy,
    "DetachRolePolicy": role_policy.detach_role_policy,
    "ListAttachedRolePolicies": role_policy.list_attached_role_policies,
    "ListEntitiesForPolicy": role_policy.list_entities_for_policy,
    "PutRolePermissionsBoundary": role_policy.put_role_permissions_boundary,
    "DeleteRolePermissionsBoundary": role_policy.delete_role_permissions_boundary,
    "CreatePolicy": policy.create_policy,
    "GetPolicy": policy.get_policy,
    "ListPolicies": policy.list_policies,
    "DeletePolicy": policy.delete_policy,
    "TagPolicy": policy.tag_policy,
    "UntagPolicy": policy.untag_policy,
    "ListPolicyTags": policy.list_policy_tags,
    "CreatePolicyVersion": policy_version.create_policy_version,
    "GetPolicyVersion": policy_version.get_policy_version,
    "ListPolicyVersions": policy_version.list_policy_versions,
    "SetDefaultPolicyVersion": policy_version.set_default_policy_version,
    "DeletePolicyVersion": policy_version.delete_policy_version,
    "SimulatePrincipalPolicy": simulation.simulate_principal_policy,
    "SimulateCustomPolicy": simulation.simulate_custom_policy,
    "CreateInstanceProfile": instance_profile.create_instance_profile,
    "GetInstanceProfile": instance_profile.get_instance_profile,
    "ListInstanceProfiles": instance_profile.list_instance_profiles,
    "ListInstanceProfilesForRole": instance_profile.list_instance_profiles_for_role,
    "AddRoleToInstanceProfile": instance_profile.add_role_to_instance_profile,
    "RemoveRoleFromInstanceProfile": instance_profile.remove_role_from_instance_profile,
    "DeleteInstanceProfile": instance_profile.delete_instance_profile,
    "CreateServiceLinkedRole": service_linked_role.create_service_linked_role,
    "DeleteServiceLinkedRole": service_linked_role.delete_service_linked_role,
    "GetServiceLinkedRoleDeletionStatus": (
        service_linked_role.get_service_linked_role_deletion_status
    ),
}
