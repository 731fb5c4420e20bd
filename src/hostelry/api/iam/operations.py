"""IAM's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.iam import role, role_tag

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
}
