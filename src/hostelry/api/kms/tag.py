"""Tags of KMS keys, whose members KMS names TagKey and TagValue."""

from collections.abc import Mapping, Sequence

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup
from hostelry.api.kms.page import marked_page
from hostelry.api.tags import read_tags, tags_of, tags_without, write_tags


def tags_of_kms(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request, checked."""
    return tags_of([{"Key": it["TagKey"], "Value": it["TagValue"]} for it in given or ()])


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource."""
    arn = lookup.changeable_key(context, params["KeyId"]).value.arn
    write_tags(context, arn, {**read_tags(context, arn), **tags_of_kms(params["Tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource."""
    arn = lookup.changeable_key(context, params["KeyId"]).value.arn
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def list_resource_tags(context: CallContext, params: Params) -> Result:
    """ListResourceTags."""
    arn = lookup.own_key(context, params["KeyId"]).value.arn
    rows = [(key, {"TagKey": key, "TagValue": it}) for key, it in read_tags(context, arn).items()]
    return marked_page(context, "ListResourceTags", params, "Tags", rows)
