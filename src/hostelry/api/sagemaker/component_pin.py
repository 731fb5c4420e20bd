"""The tag that pins a component's copies to their instances."""

from collections.abc import Mapping
from dataclasses import replace

from hostelry.api.context import CallContext
from hostelry.base.errors import validation_error

PINNED_TAG = "hostelry:pinned"
ANSWERS = {"true": True, "false": False}


def is_pinned(tags: Mapping[str, str]) -> bool:
    """Whether the tags of an inference component pin it; refuses other values than true, false."""
    value = tags.get(PINNED_TAG, "false")
    if value not in ANSWERS:
        raise validation_error(
            f'Tag {PINNED_TAG} is "{value}" on an inference component; it must be'
            f" {' or '.join(ANSWERS)}."
        )
    return ANSWERS[value]


def write_pin(context: CallContext, arn: str, *, pinned: bool) -> None:
    """Pin the copies of the component with the ARN to their instances, or unpin them."""
    for found in context.state.components.list(context.scope):
        component = found.value
        if component.arn == arn and component.pinned is not pinned:
            changed = replace(component, pinned=pinned)
            context.state.components.put(
                context.scope, component.name, changed, expect=found.version
            )
