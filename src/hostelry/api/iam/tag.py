"""Tags in IAM's form, which are members of the tagged record."""

from collections.abc import Mapping, Sequence

from hostelry.api.context import Params, Result
from hostelry.api.iam.page import iam_page
from hostelry.api.iam.refusals import invalid_input, limit_exceeded
from hostelry.domain.tags import MAX_TAGS


def tags_of(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request, checked."""
    tags: dict[str, str] = {}
    for tag in given or ():
        key = tag["Key"]
        if key.lower() in {it.lower() for it in tags}:
            raise invalid_input(
                "Duplicate tag keys found. Please note that Tag keys are case insensitive."
            )
        if key.lower().startswith("aws:"):
            raise invalid_input(f"Tag keys that begin with aws: are reserved; got {key}.")
        tags[key] = tag["Value"]
    return tags


def merged_tags(present: Mapping[str, str], params: Params) -> dict[str, str]:
    """The tags after a Tag... call: keys that differ in case only are one key."""
    added = tags_of(params["Tags"])
    replaced = {it.lower() for it in added}
    merged = {k: v for k, v in present.items() if k.lower() not in replaced} | added
    if len(merged) > MAX_TAGS:
        raise limit_exceeded(f"The number of tags has reached the maximum limit: {MAX_TAGS}")
    return merged


def remaining_tags(present: Mapping[str, str], params: Params) -> dict[str, str]:
    """The tags after an Untag... call."""
    gone = {it.lower() for it in params["TagKeys"]}
    return {key: value for key, value in present.items() if key.lower() not in gone}


def tag_page(tags: Mapping[str, str], params: Params) -> Result:
    """A page of tags."""
    page, members = iam_page(params, [(it["Key"], it) for it in tag_members(tags)])
    return {"Tags": page, **members}


def tag_members(tags: Mapping[str, str]) -> list[Result]:
    """Tags in AWS's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
