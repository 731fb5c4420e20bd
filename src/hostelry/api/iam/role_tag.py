"""TagRole, UntagRole and ListRoleTags."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.role import change_role, found_role, modifiable_role
from hostelry.api.iam.tag import merged_tags, remaining_tags, tag_page


def tag_role(context: CallContext, params: Params) -> Result:
    """TagRole: adds or overwrites."""
    role = modifiable_role(context, params["RoleName"]).value
    change_role(context, role.name, tags=merged_tags(role.tags, params))
    return {}


def untag_role(context: CallContext, params: Params) -> Result:
    """UntagRole: keys that the role does not have are no error."""
    role = modifiable_role(context, params["RoleName"]).value
    change_role(context, role.name, tags=remaining_tags(role.tags, params))
    return {}


def list_role_tags(context: CallContext, params: Params) -> Result:
    """ListRoleTags."""
    return tag_page(found_role(context, params["RoleName"]).value.tags, params)
