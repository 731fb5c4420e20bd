"""Normal forms of the fields of each kind, so that equal resources have equal params. Pure.

model      CreateModel's, always with Containers
endpoint   {"Config": CreateEndpointConfig's, "DeploymentConfig": ...}
component  {"EndpointName", "VariantName", "Specification" or "Specifications", "CopyCount",
            "DeploymentConfig"}
target     RegisterScalableTarget's bounds and suspensions
policy     {"PolicyType", and its configuration}
action     PutScheduledAction's
alarm      PutMetricAlarm's or PutCompositeAlarm's
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hostelry.cli.declared.resource import Params

DEFAULTS: Mapping[str, Any] = {
    "EnableNetworkIsolation": False,
    "Mode": "SingleModel",
    "ActionsEnabled": True,
    "TreatMissingData": "missing",
    "Timezone": "UTC",
    "DisableScaleIn": False,
    "InitialVariantWeight": 1.0,
    "ReturnData": True,
}
"""Values that a field has where it is not given."""
COUNTS = ("InitialInstanceCount", "InitialVariantWeight")
HASH_DIGITS = 10
MAX_NAME = 63


def to_form(value: Any) -> Any:
    """`value` without absent members, defaults and empty containers. Whole floats become int."""
    if isinstance(value, Mapping):
        formed = {
            name: dict(it) if name == "Environment" else to_form(it)
            for name, it in value.items()
            if it is not None
        }
        return {
            name: it
            for name, it in formed.items()
            if not (it in ({}, [], "") or (name in DEFAULTS and it == DEFAULTS[name]))
        }
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Sequence):
        return in_order([to_form(it) for it in value])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def parse_instant(text: str) -> datetime:
    """Parse a document's time, which is UTC without a zone. Raises ValueError."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def in_order(values: list[Any]) -> list[Any]:
    """Dimensions sorted by name, because their order has no meaning."""
    if values and all(isinstance(it, Mapping) and set(it) == {"Name", "Value"} for it in values):
        return sorted(values, key=lambda it: str(it["Name"]))
    return values


def model_form(given: Params) -> dict[str, Any]:
    """CreateModel's fields, or DescribeModel's, with Containers."""
    formed: dict[str, Any] = to_form(given)
    primary = formed.pop("PrimaryContainer", None)
    if primary is not None:
        formed["Containers"] = [primary]
    return formed


def without_role(params: Params, role_arn: str) -> Params:
    """`params` without the default role."""
    if params.get("ExecutionRoleArn") != role_arn:
        return params
    return {name: it for name, it in params.items() if name != "ExecutionRoleArn"}


def config_form(given: Params) -> dict[str, Any]:
    """CreateEndpointConfig's fields, or DescribeEndpointConfig's."""
    formed: dict[str, Any] = to_form(given)
    return formed


def without_counts(config: Params) -> dict[str, Any]:
    """A configuration without the values that UpdateEndpointWeightsAndCapacities changes."""
    variants = [
        {name: it for name, it in variant.items() if name not in COUNTS}
        for variant in config.get("ProductionVariants", ())
    ]
    return {**config, "ProductionVariants": variants}


def replace_models(params: Any, names: Mapping[str, str]) -> Any:
    """`params` with each ModelName of the documents replaced by the model's name in AWS."""
    if isinstance(params, Mapping):
        return {
            name: names.get(it, it)
            if name == "ModelName" and isinstance(it, str)
            else replace_models(it, names)
            for name, it in params.items()
        }
    if isinstance(params, list):
        return [replace_models(it, names) for it in params]
    return params


def models_in(params: Any) -> set[str]:
    """Every ModelName in `params`."""
    if isinstance(params, Mapping):
        own = {params["ModelName"]} if isinstance(params.get("ModelName"), str) else set()
        return own.union(*(models_in(it) for it in params.values()))
    if isinstance(params, list):
        return set().union(*(models_in(it) for it in params))
    return set()


def specifications(params: Params) -> list[Params]:
    """The specifications of a component."""
    return [params["Specification"]] if "Specification" in params else params["Specifications"]


def get_base(params: Params) -> str | None:
    """The base of an adapter. None for a component that has copies."""
    found: str | None = specifications(params)[0].get("BaseInferenceComponentName")
    return found


def hashed_name(name: str, params: Any) -> str:
    """`name` with a hash of `params`, within the 63 characters that AWS allows."""
    encoded = msgspec.json.encode(params, order="deterministic")
    digest = hashlib.sha256(encoded).hexdigest()[:HASH_DIGITS]
    return f"{name[: MAX_NAME - HASH_DIGITS - 1].rstrip('-')}-{digest}"


def is_version_of(aws_name: str, name: str) -> bool:
    """Whether `aws_name` is `name`, or `name` with a hash at its end."""
    stem, _, digest = aws_name.rpartition("-")
    is_hash = len(digest) == HASH_DIGITS and set(digest) <= set("0123456789abcdef")
    return aws_name == name or (is_hash and stem == name[: MAX_NAME - HASH_DIGITS - 1].rstrip("-"))
