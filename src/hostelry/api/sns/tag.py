"""Tags of topics."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sns.found import topic_at
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.base.errors import ServiceError


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return {"Tags": tag_list(read_tags(context, taggable(context, params)))}


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    arn = taggable(context, params)
    write_tags(context, arn, {**read_tags(context, arn), **tags_of(params["Tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource: keys that the topic does not have are no error."""
    arn = taggable(context, params)
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def taggable(context: CallContext, params: Params) -> str:
    """The ARN of an existing topic; raises ResourceNotFound."""
    try:
        return topic_at(context, params["ResourceArn"]).value.arn
    except ServiceError as error:
        if error.code != "NotFoundException":
            raise
        raise ServiceError("ResourceNotFoundException", "Resource does not exist", 404) from None
