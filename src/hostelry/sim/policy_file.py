"""Policy files: the JSON of AWS's requests, or of another rule, as values.

A file holds one object or a list of them. Each is what RegisterScalableTarget, PutScalingPolicy,
PutScheduledAction or PutMetricAlarm takes, or has one of the keys Responsive, Knative and RayServe.
MinCapacity and MaxCapacity may stand in any of them. Names of resources mean the replayed model.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.json import convert
from hostelry.domain.scaling import Dimension
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.sim.peers import KnativeRule, RayServeRule
from hostelry.sim.policy_requests import (
    AUTOSCALING,
    PolicySet,
    build_alarm,
    build_policy,
    build_scheduled_action,
    check_request,
)

MAX_FILE_BYTES = 1 << 20
MAX_CAPACITY = 100_000
MOST = 1e6
BOUNDS = ("MinCapacity", "MaxCapacity")
RULES: Mapping[str, type[Any]] = {
    "Responsive": ResponsiveOptions,
    "Knative": KnativeRule,
    "RayServe": RayServeRule,
}
KINDS = (
    "RegisterScalableTarget (MinCapacity, MaxCapacity), PutScalingPolicy (PolicyName), "
    "PutScheduledAction (ScheduledActionName), PutMetricAlarm (AlarmName), "
    "Responsive, Knative or RayServe"
)
T = TypeVar("T", bound=msgspec.Struct)


def read_policy(path: Path) -> PolicySet:
    """Read the policies of a file. Raises TerminalError with the file, field and limit."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TerminalError(f"{path} has more than {MAX_FILE_BYTES:,} bytes")
        tree = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise TerminalError(f"{path} is not JSON: {error}") from None
    try:
        return build_policy_set(tree, path.stem)
    except (HostelryError, ValueError) as error:
        raise TerminalError(f"{path}: {error}") from None


def build_policy_set(tree: Any, name: str) -> PolicySet:
    """Build the policies of a decoded file. Raises ServiceError, TerminalError or ValueError."""
    items = tree if isinstance(tree, list) else [tree]
    if not items or not all(isinstance(it, dict) for it in items):
        raise TerminalError(f"it must hold an object or a list of objects: {KINDS}")
    found = PolicySet(name=name)
    for item in items:
        found = _add_item(_add_bounds(found, item), dict(item))
    return _check_set(found)


def _add_bounds(found: PolicySet, item: Mapping[str, Any]) -> PolicySet:
    if "ScheduledActionName" in item:
        return found  # its bounds are those it sets later
    low, high = (item.get(it, known) for it, known in zip(BOUNDS, _bounds(found), strict=True))
    for name, value in zip(BOUNDS, (low, high), strict=True):
        if type(value) is not int or not 0 <= value <= MAX_CAPACITY:
            raise TerminalError(f"{name} is {value!r}; it must be from 0 to {MAX_CAPACITY:,}")
    return replace(found, minimum=low, maximum=high)


def _bounds(found: PolicySet) -> tuple[int, int]:
    return (found.minimum, found.maximum)


def _add_item(found: PolicySet, item: dict[str, Any]) -> PolicySet:
    if "ScheduledActionName" in item:
        return replace(found, schedules=(*found.schedules, build_scheduled_action(item)))
    rest = {name: value for name, value in item.items() if name not in BOUNDS}
    named = [it for it in RULES if it in rest]
    if named:
        return _add_rule(found, named[0], rest)
    if "AlarmName" in rest:
        return replace(found, alarms=(*found.alarms, build_alarm(rest)))
    if "PolicyName" in rest or "PolicyType" in rest or any("PolicyConf" in it for it in rest):
        policy = build_policy(rest, len(found.policies))
        return replace(found, policies=(*found.policies, policy), dimension=policy.dimension)
    if len(rest) == len(item) and not found.policies:
        raise TerminalError(f"{', '.join(sorted(item)) or 'an empty object'} is none of: {KINDS}")
    check_request(AUTOSCALING, "RegisterScalableTarget", item)
    return found


def _add_rule(found: PolicySet, name: str, rest: Mapping[str, Any]) -> PolicySet:
    others = [it for it in rest if it != name]
    if others:
        raise TerminalError(f"{others[0]} stands beside {name}; only {' and '.join(BOUNDS)} may")
    value = _build_options(RULES[name], name, rest[name])
    if isinstance(value, ResponsiveOptions):
        return replace(found, responsive=value)
    return replace(found, rule=value)


def _build_options(kind: type[T], name: str, given: Any) -> T:
    """The rule's options, under the rule's names or in AWS's manner (MaxGrowth)."""
    if not isinstance(given, dict):
        raise TerminalError(f"{name} must be an object of options, such as {{'target': 5}}")
    options = {_snake(key): value for key, value in given.items()}
    known = kind.__struct_fields__
    unknown = [it for it in options if it not in known]
    if unknown:
        raise TerminalError(f"{name} has no option {unknown[0]}. There are: {', '.join(known)}")
    try:
        value = convert(options, kind)
    except msgspec.ValidationError as error:
        raise TerminalError(f"{name}: {error}") from None
    for option in known:
        number = getattr(value, option)
        if number is not None and not 0.0 < number <= MOST:
            raise TerminalError(f"{name}.{option} is {number}; it must be above 0, to {MOST:,.0f}")
    return value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _check_set(found: PolicySet) -> PolicySet:
    if found.minimum > found.maximum:
        raise TerminalError(
            f"MinCapacity is {found.minimum} and MaxCapacity {found.maximum}; "
            "the first must not be the larger"
        )
    if found.rule is not None and (found.policies or found.responsive):
        raise TerminalError("another system's rule has the number to itself: give it its own file")
    if len({it.dimension for it in found.policies}) > 1:
        raise TerminalError("the policies scale different dimensions; a replay has one")
    _check_alarms(found)
    if found.dimension is Dimension.PROVISIONED_CONCURRENCY:
        raise TerminalError(f"{found.dimension.value} is not replayed; copies or instances are")
    return found


def _check_alarms(found: PolicySet) -> None:
    names = [it.name for it in found.policies]
    steps: Sequence[str] = [it.name for it in found.policies if it.stepping is not None]
    for alarm in found.alarms:
        if alarm.policy_name not in names:
            raise TerminalError(
                f"AlarmActions of {alarm.name} names the policy {alarm.policy_name!r}; "
                f"the file has {', '.join(names) or 'none'}"
            )
    triggered = {it.policy_name for it in found.alarms}
    idle = [it for it in steps if it not in triggered]
    if idle:
        raise TerminalError(
            f"the step policy {idle[0]} has no alarm: add an object as PutMetricAlarm takes it, "
            "with the policy's name in AlarmActions"
        )
