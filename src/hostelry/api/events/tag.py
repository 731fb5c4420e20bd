"""ListTagsForResource, TagResource and UntagResource, of rules."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.events.refusals import absent
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.domain.event_rule import rule_arn


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
    arn: str = params["ResourceARN"]
    name = arn.rpartition("/")[2]
    known = context.state.event_rules.get(context.scope, name)
    if known is None or arn != rule_arn(context.scope, name):
        raise absent(f"Resource {arn} does not exist; rules have tags, and only they.")
    return arn
