"""The actions of an alarm, as requests give them."""

from collections.abc import Mapping, Sequence

from hostelry.api.context import Params
from hostelry.base.errors import validation_error
from hostelry.domain.alarm import AlarmActions
from hostelry.scaling.decide.alarm_target import TargetKind, target_kind

FIELDS = ("AlarmActions", "OKActions", "InsufficientDataActions")
KNOWN = (
    "Hostelry can do: the ARN of a scaling policy (arn:aws:autoscaling:...), the ARN of a topic"
    " (arn:aws:sns:...) that the operator's actions.toml maps to web addresses, and an http:// or"
    " https:// address"
)


def actions_of(params: Params, kinds: Sequence[TargetKind] = tuple(TargetKind)) -> AlarmActions:
    """The actions that `params` name; raises ValidationError for what is none of `kinds`."""
    given: Mapping[str, Sequence[str]] = {name: params.get(name) or () for name in FIELDS}
    for name, actions in given.items():
        for action in actions:
            check_action(name, action, kinds)
    return AlarmActions(
        enabled=params.get("ActionsEnabled") is not False,
        alarm=tuple(given["AlarmActions"]),
        ok=tuple(given["OKActions"]),
        insufficient_data=tuple(given["InsufficientDataActions"]),
    )


def check_action(field: str, action: str, kinds: Sequence[TargetKind]) -> None:
    """Refuse an action that cannot be done."""
    kind = target_kind(action)
    if kind is None:
        raise validation_error(f"{field}: the action '{action}' is not supported. {KNOWN}.")
    if kind not in kinds:
        raise validation_error(
            f"{field}: the action '{action}' is {kind.value}, which a composite alarm cannot have."
        )
