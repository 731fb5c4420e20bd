"""ListTagsForResource, TagResource and UntagResource, of groups."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.scheduler.group import has_group
from hostelry.api.scheduler.refusals import absent
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"Tags": tag_list(read_tags(context, _checked(context, params)))}


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource."""
    arn = _checked(context, params)
    write_tags(context, arn, {**read_tags(context, arn), **tags_of(params["Tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource."""
    arn = _checked(context, params)
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def _checked(context: CallContext, params: Params) -> str:
    arn: str = params["ResourceArn"]
    if not has_group(context.state, context.scope, arn):
        raise absent(f"Resource {arn} does not exist; schedule groups have tags, and only they.")
    return arn
