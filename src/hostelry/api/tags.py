"""The tags of a resource: read from a request, checked, stored."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import validation_error
from hostelry.domain.scope import MAX_TAGS, TagSet
from hostelry.scaling.decide.responsive.options import OFF, RESPONSIVE_TAG, parse_options_tag


def read_tags(context: CallContext, arn: str) -> Mapping[str, str]:
    """The resource's tags."""
    stored = context.state.tags.get(context.scope, arn)
    return stored.value.tags if stored else {}


def write_tags(context: CallContext, arn: str, tags: Mapping[str, str]) -> None:
    """Replace the resource's tags by `tags`."""
    if len(tags) > MAX_TAGS:
        raise validation_error(f"{len(tags)} tags on {arn}; a resource has at most {MAX_TAGS}.")
    records, scope = context.state.tags, context.scope
    stored = records.get(scope, arn)
    if tags:
        value = TagSet(scope=scope, arn=arn, tags=dict(tags))
        records.put(scope, arn, value, expect=stored.version if stored else None)
    elif stored:
        records.delete(scope, arn, expect=stored.version)


def tag_list(tags: Mapping[str, str]) -> list[Result]:
    """Tags in AWS's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def parse_tags(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request, checked."""
    tags: dict[str, str] = {}
    for tag in given or ():
        key = tag.get("Key", "")
        if not key or "Value" not in tag:
            raise validation_error("A tag must have a Key and a Value.")
        if key in tags:
            raise validation_error(f'Tag keys must be unique; "{key}" was given twice.')
        if key.lower().startswith("aws:"):
            raise validation_error(f'Tag key "{key}" begins with "aws:", which is reserved.')
        tags[key] = tag["Value"]
    check_responsive(tags)
    return tags


def add_tags(context: CallContext, arn: str, tags: Mapping[str, str]) -> None:
    """Add `tags` to the resource's tags. Tags with the same keys are overwritten."""
    write_tags(context, arn, {**read_tags(context, arn), **tags})


def remove_tags(context: CallContext, arn: str, keys: Collection[str]) -> None:
    """Remove the resource's tags with these keys. Missing keys are ignored."""
    write_tags(context, arn, tags_without(context, arn, keys))


class TagOperations(msgspec.Struct, frozen=True, kw_only=True):
    """TagResource, UntagResource and ListTagsForResource of one service.

    `find_arn` returns the ARN of the existing resource that a request names, or raises
    ServiceError. `tags` and `keys` are the members of the requests.
    """

    find_arn: Callable[[CallContext, Params], str]
    tags: str = "Tags"
    keys: str = "TagKeys"

    def tag_resource(self, context: CallContext, params: Params) -> Result:
        """TagResource: adds or overwrites."""
        add_tags(context, self.find_arn(context, params), parse_tags(params[self.tags]))
        return {}

    def untag_resource(self, context: CallContext, params: Params) -> Result:
        """UntagResource. Missing keys are ignored."""
        remove_tags(context, self.find_arn(context, params), params[self.keys])
        return {}

    def list_tags_for_resource(self, context: CallContext, params: Params) -> Result:
        """ListTagsForResource."""
        return {self.tags: tag_list(read_tags(context, self.find_arn(context, params)))}


def tags_without(context: CallContext, arn: str, keys: Collection[str]) -> Mapping[str, str]:
    """The resource's tags without the tags with these keys."""
    return {key: value for key, value in read_tags(context, arn).items() if key not in keys}


def check_responsive(tags: Mapping[str, str]) -> None:
    """Raise ValidationException for an invalid value of the responsive policy's tag."""
    try:
        parse_options_tag(tags.get(RESPONSIVE_TAG, OFF))
    except ValueError as error:
        value = tags[RESPONSIVE_TAG]
        raise validation_error(f'Tag {RESPONSIVE_TAG} is "{value}": {error}.') from None
