"""The tag that chooses, for an endpoint or a component, the answer to requests without a copy."""

from collections.abc import Mapping
from dataclasses import replace

from hostelry.api.context import CallContext
from hostelry.base.errors import validation_error
from hostelry.domain.at_zero import AtZero

AT_ZERO_TAG = "hostelry:zero"
ANSWERS = {it.value: it for it in AtZero}


def at_zero_of(tags: Mapping[str, str]) -> AtZero | None:
    """The choice of the tags; None where they leave it to the endpoint, or to the home."""
    value = tags.get(AT_ZERO_TAG)
    if value is None:
        return None
    if value not in ANSWERS:
        raise validation_error(
            f'Tag {AT_ZERO_TAG} is "{value}"; it must be {" or ".join(ANSWERS)}: requests wait for '
            "a copy, or are answered with AWS's error while there is none."
        )
    return ANSWERS[value]


def write_at_zero(context: CallContext, arn: str, chosen: AtZero | None) -> None:
    """Set the choice of the endpoint or the component with the ARN."""
    scope, state = context.scope, context.state
    for component in state.components.list(scope):
        if component.value.arn == arn and component.value.at_zero is not chosen:
            changed = replace(component.value, at_zero=chosen)
            state.components.put(scope, changed.name, changed, expect=component.version)
    for endpoint in state.endpoints.list(scope):
        if endpoint.value.arn == arn and endpoint.value.at_zero is not chosen:
            moved = replace(endpoint.value, at_zero=chosen)
            state.endpoints.put(scope, moved.name, moved, expect=endpoint.version)
