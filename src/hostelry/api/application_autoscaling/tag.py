"""TagResource, UntagResource and ListTagsForResource of Application Auto Scaling."""

from collections.abc import Mapping

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.tags import read_tags, tags_without, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.tags import MAX_TAGS


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    arn = existing_target_arn(context, params["ResourceARN"])
    write_tags(context, arn, tags_with(context, arn, params["Tags"]))
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource: keys that the target does not have are no error."""
    arn = existing_target_arn(context, params["ResourceARN"])
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"Tags": dict(read_tags(context, existing_target_arn(context, params["ResourceARN"])))}


def tags_with(context: CallContext, arn: str, tags: Mapping[str, str]) -> Mapping[str, str]:
    """The target's tags with `tags` added or overwritten; raises ServiceError for invalid ones."""
    for key in tags:
        if key.lower().startswith("aws:"):
            raise validation_error(f'Tag key "{key}" begins with "aws:", which is reserved.')
    after = {**read_tags(context, arn), **tags}
    if len(after) > MAX_TAGS:
        raise ServiceError(
            "TooManyTagsException",
            f"{len(after)} tags on {arn}; a scalable target has at most {MAX_TAGS}.",
            members={"ResourceName": arn},
        )
    return after


def existing_target_arn(context: CallContext, arn: str) -> str:
    """`arn`, where a registered target has it; raises ResourceNotFoundException."""
    targets = context.state.scalable_targets.list(context.scope)
    if any(it.value.arn == arn for it in targets):
        return arn
    raise ServiceError(
        "ResourceNotFoundException",
        f"No scalable target has the ARN {arn}.",
        members={"ResourceName": arn},
    )
