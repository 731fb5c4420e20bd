"""Tags of log groups, by ARN and in the older operations by name."""

from collections.abc import Collection, Mapping

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.lookup import group_arn, group_named, group_of_arn, invalid
from hostelry.api.tags import read_tags, tags_without, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.tags import MAX_TAGS

MAX_KEY, MAX_VALUE = 128, 256


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource: adds or overwrites."""
    return _add(context, group_of_arn(context, params["resourceArn"]).name, params["tags"])


def tag_log_group(context: CallContext, params: Params) -> Result:
    """TagLogGroup: adds or overwrites."""
    return _add(context, group_named(context, params["logGroupName"]).name, params["tags"])


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource: keys that the group does not have are no error."""
    return _remove(context, group_of_arn(context, params["resourceArn"]).name, params["tagKeys"])


def untag_log_group(context: CallContext, params: Params) -> Result:
    """UntagLogGroup: keys that the group does not have are no error."""
    return _remove(context, group_named(context, params["logGroupName"]).name, params["tags"])


def list_tags_for_resource(context: CallContext, params: Params) -> Result:
    """ListTagsForResource."""
    return _list(context, group_of_arn(context, params["resourceArn"]).name)


def list_tags_log_group(context: CallContext, params: Params) -> Result:
    """ListTagsLogGroup."""
    return _list(context, group_named(context, params["logGroupName"]).name)


def checked_tags(given: Mapping[str, str]) -> dict[str, str]:
    """The tags of a request; raises InvalidParameterException."""
    for key, value in given.items():
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE:
            raise invalid(f"A tag has a key of 1 to {MAX_KEY} and a value of up to {MAX_VALUE}.")
        if key.lower().startswith("aws:"):
            raise invalid(f'Tag key "{key}" begins with "aws:", which is reserved.')
    return dict(given)


def _add(context: CallContext, name: str, given: Mapping[str, str]) -> Result:
    arn = group_arn(context, name)
    tags = {**read_tags(context, arn), **checked_tags(given)}
    if len(tags) > MAX_TAGS:
        raise ServiceError("TooManyTagsException", f"A log group has at most {MAX_TAGS} tags.")
    write_tags(context, arn, tags)
    return {}


def _remove(context: CallContext, name: str, keys: Collection[str]) -> Result:
    arn = group_arn(context, name)
    write_tags(context, arn, tags_without(context, arn, keys))
    return {}


def _list(context: CallContext, name: str) -> Result:
    return {"tags": dict(read_tags(context, group_arn(context, name)))}
